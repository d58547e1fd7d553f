#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# promtool.sh - prints where promtool is: installed, or from Debian's package `prometheus`, unpacked below the cache folder
# and not installed, since that would start a service. Exit status 77 with one line where it cannot be had.
set -euo pipefail

if command -v promtool; then
    exit
fi
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/cairn/promtool
if [[ ! -x $cache/usr/bin/promtool ]]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    if ! (cd "$scratch" && apt-get download prometheus && dpkg -x prometheus_*.deb tree) >"$scratch/log" 2>&1; then
        echo "promtool: it is not installed, and apt-get download prometheus failed" >&2
        exit 77
    fi
    mkdir -p "$cache/usr/bin"
    mv "$scratch/tree/usr/bin/promtool" "$cache/usr/bin/promtool"
fi
echo "$cache/usr/bin/promtool"
