#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a match says a load will take, against what it takes, on the disk under TMPDIR.
set -u
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for _ in 1 2 3; do # one quiet moment is enough
	rm -rf "$directory/store"
	"$CAIRN_BUILD/torture_worth" "$directory/store" && exit 0
done
exit 1
