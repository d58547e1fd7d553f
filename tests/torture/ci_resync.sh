#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A router's snapshot of two million parts, and the gets of others beside it.
set -u
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$CAIRN_BUILD/torture_resync" "$directory" "${CAIRN_RESYNC_PARTS:-2000000}" "$CAIRN"
