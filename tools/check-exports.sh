#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check-exports.sh LIBRARY - house rule: libcairn.so exports every CAIRN_API function of cairn.h, and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

library=${1:-build/default/libcairn.so}
header=include/cairn/cairn.h

declare -A exported declared
while read -r name; do
    exported[$name]=1
done < <(nm -D --defined-only "$library" | awk '$2 ~ /[A-Z]/ && $2 != "A" { sub(/@.*/, "", $3); print $3 }')
while IFS=: read -r line name; do
    declared[$name]=$line
done < <(awk '/^CAIRN_API/ { line = $0; sub(/\(.*/, "", line); sub(/.*[ *]/, "", line); print NR ":" line }' "$header")

wrong=$(
    for name in "${!declared[@]}"; do
        [[ -n ${exported[$name]:-} ]] || echo "$header:${declared[$name]}: $name is not exported by ${library##*/}"
    done
    for name in "${!exported[@]}"; do
        [[ -n ${declared[$name]:-} ]] || echo "${library##*/}:1: exports $name, which cairn.h does not declare"
    done
)
if [[ -n $wrong ]]; then
    sort -t: -k1,1 -k2,2n <<<"$wrong"
    exit 1
fi
