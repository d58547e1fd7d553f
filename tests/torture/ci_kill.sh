# SPDX-License-Identifier: Apache-2.0
# The same for a hundred rounds at least.
set -eu
CAIRN_TORTURE_ROUNDS=${CAIRN_TORTURE_ROUNDS:-100} exec bash "$(dirname "$0")/kill.sh"
