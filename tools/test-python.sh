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
export PYTHONPATH=$folder
if [[ -n ${CAIRN_PRELOAD:-} ]]; then
    # Python's own allocator would hide what is used after it was freed; what it never frees is not a leak of ours.
    export PYTHONMALLOC=malloc ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" LD_PRELOAD=$CAIRN_PRELOAD
fi
exec "$python" -B -X faulthandler -m pytest "$@"
