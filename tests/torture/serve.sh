#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torture_serve for three rounds, one of each kind; CAIRN_TORTURE_ROUNDS for more.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export CAIRN_TORTURE_FLASH=$directory/flash.cairn:512MiB
"$CAIRN_BUILD/torture_serve" "$CAIRN_BUILD/cairnd" "$directory/store" "${CAIRN_TORTURE_ROUNDS:-3}" 2>"$directory/log" || {
	grep -v ' info ' "$directory/log"
	exit 1
}
