#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh - installs what building and testing need, on Debian by apt. Silent when nothing is missing; touches no
# package that is there. Exit status 1 with one line that says what to do when it cannot.
set -euo pipefail

missing=()

# need PACKAGE COMMAND...: PACKAGE is missing unless COMMAND succeeds.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

# A runtime library of clang, wherever this clang keeps its own.
has_clang_runtime() {
    local runtime
    runtime=$(clang -print-file-name=libclang_rt.fuzzer-"$(uname -m)".a) && [[ -f $runtime ]]
}
has_tc() { PATH=$PATH:/sbin:/usr/sbin command -v tc; }
has_libraries() { pkg-config --exists "$@"; }
has_python() { python3 -Ec 'import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, sys.argv[1:])))' "$@"; }

has_python_header() {
    python3 -Ec 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

find_missing() {
    local command
    missing=()
    for command in gcc g++ clang cmake make git fio iperf3 python3 pkg-config; do
        need "$command" command -v "$command"
    done
    need ninja-build command -v ninja
    need iproute2 has_tc
    need libclang-rt-14-dev has_clang_runtime
    # One question for all first: this runs before every check.
    if ! has_libraries 'libssl >= 3.0' libxxhash 'liburing >= 2.3' jansson yaml-0.1 cmocka zlib libmicrohttpd ncursesw >/dev/null 2>&1; then
        need libssl-dev has_libraries 'libssl >= 3.0'
        need libxxhash-dev has_libraries libxxhash
        need liburing-dev has_libraries 'liburing >= 2.3'
        need libjansson-dev has_libraries jansson
        need libyaml-dev has_libraries yaml-0.1
        need libcmocka-dev has_libraries cmocka
        need zlib1g-dev has_libraries zlib
        need libmicrohttpd-dev has_libraries libmicrohttpd
        need libncurses-dev has_libraries ncursesw
    fi
    need libucx-dev test -e /usr/include/ucp/api/ucp.h
    need python3-dev has_python_header
    if ! has_python ensurepip pip >/dev/null 2>&1; then
        need python3-venv has_python ensurepip
        need python3-pip has_python pip
    fi
}

fail() {
    printf 'setup: %s; install by hand: %s\n' "$1" "${missing[*]}" >&2
    exit 1
}

find_missing
((${#missing[@]} > 0)) || exit 0

command -v apt-get >/dev/null || fail "this is not Debian"
as_root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "not root, and there is no sudo"
    as_root=(sudo)
fi

echo "setup: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@" \
        </dev/null >>"$log" 2>&1
}
if ! apt update || ! apt install --no-install-recommends "${missing[@]}"; then
    tail -n 5 "$log" >&2
    fail "apt-get failed"
fi
wanted=("${missing[@]}")
find_missing
((${#missing[@]} == 0)) || fail "installed ${wanted[*]}, but something is still missing"
