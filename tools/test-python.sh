#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test-python.sh PYTHON FOLDER TEST... - runs tests of the Python package, which lies in FOLDER. PYTHON: none, or one without
# pytest: skipped (77).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$1
folder=$2
shift 2
if [[ $python == none ]] || ! "$python" -B -c 'import cffi, pytest' 2>/dev/null; then
    echo "skipped: no Python environment (tools/setup-python.sh makes it)"
    exit 77
fi
exec env PYTHONPATH="$folder" "$python" -B -m pytest "$@"
