# SPDX-License-Identifier: Apache-2.0
# The same for forty rounds.
set -eu
CAIRN_TORTURE_ROUNDS=${CAIRN_TORTURE_ROUNDS:-40} exec bash "$(dirname "$0")/serve.sh"
