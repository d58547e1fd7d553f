#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup-python.sh - sets up the Python environment that builds and tests the package cairnkv.
#
#   tools/setup-python.sh           sets up what is missing
#   tools/setup-python.sh --find    prints its python if it is there, else nothing and exit status 1; sets nothing up
#
# stdout: nothing but that. Progress and errors: stderr. Exit: 0 all is there, 1 failed (one line says what to do), 2 wrong
# usage.
#
# Needs what tools/setup.sh installs and a package index pip can reach (its usual settings hold, such as PIP_INDEX_URL);
# 80 MB and half a minute. It lies in the cache directory, ${CAIRN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cairn}, as
# python/NAME, NAME being made of the pins below; .complete is written last.
set -euo pipefail

# Raise RECIPE when the environment changes in a way the pins don't show.
readonly RECIPE=1
readonly PINS=(
    cffi==2.1.1
    scikit-build-core==1.1.2
    packaging==26.4
    pathspec==1.1.1
    pycparser==3.12
    pytest==9.2.0
    iniconfig==2.3.1
    pluggy==1.7.0
    pygments==2.21.0
    mypy==2.4.1
    mypy-extensions==1.2.0
    typing-extensions==4.16.0
    ast-serialize==0.13.1
    librt==0.17.0
    ruff==0.17.6
)

say() { printf 'setup-python: %s\n' "$*" >&2; }
# fail WHAT WHAT-TO-DO
fail() {
    say "FAILED: $1; $2"
    exit 1
}

only_find=
case "$#:${1-}" in
0:) ;;
1:--find) only_find=1 ;;
*)
    say "usage: tools/setup-python.sh [--find]"
    exit 2
    ;;
esac

cache=$(realpath -m "${CAIRN_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/cairn}")
# The interpreter is part of the name: the environment is of no use under another one.
if ! interpreter=$(python3 -Ec 'import sys, sysconfig; print(sysconfig.get_platform(), *sys.version_info[:3], sys.base_prefix)')
then
    fail "there is no python3" "run tools/setup.sh"
fi
name=$(printf '%s\n' "$RECIPE" "$interpreter" "${PINS[@]}" | sha256sum)
readonly environment=$cache/python/${name:0:16}

have() { [[ -f $environment/.complete && -x $environment/bin/python ]]; }

if [[ -n $only_find ]]; then
    have || exit 1
    printf '%s\n' "$environment/bin/python"
    exit 0
fi
if have; then exit 0; fi

mkdir -p "$cache/python" 2>/dev/null || fail "can't write to the directory $cache" "set CAIRN_CACHE to one you can write"
exec 9>"$cache/setup-python.lock"
if ! flock --nonblock 9; then
    say "waiting for another run to finish"
    flock 9
    if have; then exit 0; fi
fi
readonly log=$cache/setup-python.log
rm -rf "$environment" # of a run that was killed: a venv knows its own path, so it is made where it stays
say "setting up the Python environment"
(
    python3 -m venv "$environment" || fail "python3 can't make a venv" "run tools/setup.sh (log: $log)"
    "$environment/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps "${PINS[@]}" ||
        fail "pip could not install the packages" \
            "check that pip reaches its package index (proxy, PIP_INDEX_URL) and run this again (log: $log)"
) >"$log" 2>&1 || {
    tail -n 1 "$log" >&2
    exit 1
}
touch "$environment/.complete"
say "done"
