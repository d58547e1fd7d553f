#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lib_vllm.sh NAME: runs tests/e2e/vllm/NAME.py with the vLLM of tools/setup-vllm.sh and the cairnkv of this build.
set -euo pipefail

: "${CAIRN_SOURCE:?}" "${CAIRN_BUILD:?}" "${CAIRN:?}"
if ! settings=$("$CAIRN_SOURCE/tools/setup-vllm.sh" --have); then
    echo "vLLM is not set up (tools/setup-vllm.sh makes it, 7 GB): skipped"
    exit 77
fi
eval "$settings"
export VLLM_PYTHON VLLM_MODEL CAIRN
CAIRNKV_PATH=${CAIRNKV_PATH:-$CAIRN_BUILD/python}
export CAIRNKV_PATH
if ! [[ -d $CAIRNKV_PATH/cairnkv ]]; then
    echo "no cairnkv in $CAIRNKV_PATH: skipped"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
WORK=$work PYTHONPATH=$CAIRNKV_PATH PYTHONDONTWRITEBYTECODE=1 \
    "$VLLM_PYTHON" "$CAIRN_SOURCE/tests/e2e/vllm/$1.py"
