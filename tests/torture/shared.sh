#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torture_shared: processes that share a directory without a server that somebody started.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
timeout 240 "$CAIRN_BUILD/torture_shared" "$directory/store" "${CAIRN_TORTURE_ROUNDS:-4}"
for ((i = 0; i < 100; i++)); do # its files are gone only after it is
	flock -n "$directory/store/lock" true && exit
	sleep 0.1
done
echo "the cairnd has not ended"
exit 1
