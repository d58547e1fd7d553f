#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PRESET [CMAKE-OPTION...] - configures a preset (quietly, unless it fails) and builds it in build/PRESET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
if ! output=$(cmake --preset "$preset" "$@" 2>&1); then
    printf '%s\n' "$output" >&2
    exit 1
fi
cmake --build --preset "$preset" -- --quiet
