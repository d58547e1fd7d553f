# SPDX-License-Identifier: Apache-2.0
# The same for 240 seeds, others than those of make check; make check-full: 4,000.
set -eu
export CAIRN_NET_FIRST=${CAIRN_NET_FIRST:-1001}
export CAIRN_NET_SEEDS=${CAIRN_NET_SEEDS:-${CAIRN_FULL:+4000}}
CAIRN_NET_SEEDS=${CAIRN_NET_SEEDS:-240} exec bash "$(dirname "$0")/net.sh"
