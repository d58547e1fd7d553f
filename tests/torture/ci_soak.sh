# SPDX-License-Identifier: Apache-2.0
# torture_soak for forty seconds; in make check-full for ten minutes. CAIRN_SOAK_SECONDS says it otherwise.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export CAIRN_TORTURE_FLASH=$directory/flash.cairn:64MiB
seconds=${CAIRN_SOAK_SECONDS:-${CAIRN_FULL:+600}}
"$CAIRN_BUILD/torture_soak" "$CAIRN_BUILD/cairnd" "$directory/store" "${seconds:-40}" 2>"$directory/log" || {
	grep -v ' info ' "$directory/log"
	exit 1
}
