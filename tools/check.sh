#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.sh check|ci|full - builds and tests. The last output is ctest's summary; the exit status is non-zero when
# anything failed.
#
#   check  the default build, the house rules, and every test that is not marked ci: under three minutes
#   ci     sanitizers, clang, long simulation, live fuzzing, and the tests marked ci
#   full   the same for hours: 25 times the seeds, ten minutes of fuzzing for each target
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc)
say() { printf '== %s\n' "$*"; }

check() {
    setup_python
    say "build"
    tools/build.sh default
    say "house rules and tests"
    ctest --preset default -j "$jobs"
}

# llama.cpp for the engine's end-to-end test. Where it cannot be had, the test says that it was skipped.
setup_llama() {
    local settings
    if settings=$(tools/setup-llama.sh --print); then
        eval "$settings"
        export PKG_CONFIG_PATH MODEL
    else
        say "no llama.cpp: its end-to-end test will be skipped"
    fi
}

# The Python that builds and tests the package. Where it cannot be had, its tests say that they were skipped.
setup_python() {
    tools/setup-python.sh || say "no Python environment: the tests of the Python package will be skipped"
}

# vLLM for its own: 7 GB and minutes at the first time, then nothing.
setup_vllm() { tools/setup-vllm.sh || say "no vLLM: its end-to-end tests will be skipped"; }

# What runs ctest: gcc 12's thread sanitizer does not start where the kernel randomises addresses by more than 28 bits.
ctest_runner=()
calm_addresses() {
    local bits
    bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)
    if ((bits > 28)) && setarch -R true 2>/dev/null; then
        ctest_runner=(setarch -R)
    fi
}

# ci SEEDS FUZZ-SECONDS TIMEOUT-SECONDS FAULT-MINUTES
ci() {
    local preset
    setup_llama
    setup_vllm
    setup_python
    say "build: default"
    tools/build.sh default "-DCAIRN_SIM_SEEDS_CI=$1" "-DCAIRN_TEST_TIMEOUT_CI_S=$3" \
        "-DCAIRN_FAULT_MINUTES=$4"
    for preset in asan tsan clang; do
        say "build: $preset"
        tools/build.sh "$preset"
    done
    say "build: fuzz"
    tools/build.sh fuzz "-DCAIRN_FUZZ_SECONDS=$2"

    say "tests"
    # One run over all builds, so that one summary tells everything.
    mkdir -p build/ci
    for preset in default asan tsan clang fuzz; do
        printf 'subdirs("%s/build/%s")\n' "$PWD" "$preset"
    done >build/ci/CTestTestfile.cmake
    calm_addresses
    "${ctest_runner[@]}" ctest --test-dir build/ci -LE '^check$' -j "$jobs" --output-on-failure
}

tools/setup.sh
case ${1:-} in
check) check ;;
ci) ci 1000 10 1800 12 ;;
full)
    export CAIRN_FULL=1
    ci 50000 600 36000 600
    ;;
*)
    echo "usage: tools/check.sh check|ci|full" >&2
    exit 2
    ;;
esac
