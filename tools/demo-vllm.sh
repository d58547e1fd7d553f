#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-vllm.sh - a conversation moves from a vLLM server that was killed to another one, with the same words.
#
#   tools/demo-vllm.sh [--quick] [--lengths "1024 2048 4096 8000"] [--runs N] [--dir DIR] [--out FILE]
#
# See tools/demo_vllm.py. It needs what tools/setup-vllm.sh makes (7 GB, minutes), and a build: both are made here.
#
# Exit: 0 the same words, 1 not, or something failed (one line says what), 2 wrong usage.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$source"

tools/setup-python.sh >/dev/null
settings=$(tools/setup-vllm.sh --print)
eval "$settings"
mkdir -p build
tools/build.sh default >build/demo-vllm.log 2>&1 || { tail -n 20 build/demo-vllm.log >&2; exit 1; }
export VLLM_PYTHON VLLM_MODEL CAIRN_SOURCE=$source CAIRN=$source/build/default/cairn
export CAIRNKV_PATH=$source/build/default/python
exec "$VLLM_PYTHON" -B tools/demo_vllm.py "$@"
