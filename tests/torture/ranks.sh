#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# torture_ranks: the ranks of one engine over one cairnd; some of them die, blocks go.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export CAIRN_TORTURE_FLASH="$directory/flash.cairn:256MiB"
timeout 240 "$CAIRN_BUILD/torture_ranks" "$CAIRN_BUILD/cairnd" "$directory/store" $((20000 + RANDOM % 20000)) \
	"${CAIRN_TORTURE_ROUNDS:-4}"
