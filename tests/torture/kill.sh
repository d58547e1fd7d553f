# SPDX-License-Identifier: Apache-2.0
# Kills torture_kill's child CAIRN_TORTURE_ROUNDS times (a dozen seconds of it where that is not set).
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
if [ -n "${CAIRN_TORTURE_ROUNDS:-}" ]; then
	"$CAIRN_BUILD/torture_kill" "$CAIRN_TORTURE_ROUNDS" 0 "$directory"
else
	"$CAIRN_BUILD/torture_kill" 1000 12 "$directory"
fi
