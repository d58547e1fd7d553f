#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# cairn-llama's API under the address and undefined-behaviour sanitizers: plugins/llama/test/test_api.c, with a real
# model.
set -euo pipefail

if [[ ! -x $CAIRN_BUILD/cairn-llama-demo || ! -f ${MODEL:-} ]] || ! pkg-config --exists llama; then
    echo "no cairn-llama-demo, MODEL is not set, or pkg-config does not find llama (tools/setup-llama.sh): skipped"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cc=${CC:-cc}
flags=(-std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fsanitize=address -fsanitize=undefined
    -fno-sanitize-recover=all "-I$CAIRN_SOURCE/include" "-I$CAIRN_SOURCE/plugins/llama")
read -ra llama <<<"$(pkg-config --cflags --libs llama) -Wl,-rpath,$(pkg-config --variable=libdir llama)"
read -ra needs <<<"$(pkg-config --libs libssl libcrypto libxxhash liburing)"
"$cc" "${flags[@]}" "$CAIRN_SOURCE"/plugins/llama/test/test_api.c "$CAIRN_SOURCE"/plugins/llama/*.c \
    "$CAIRN_BUILD/libcairn.a" "${llama[@]}" "${needs[@]}" -lpthread -lm -o "$work/test_api"
CAIRN_CACHE=$work/cache "$work/test_api" "$MODEL" "$work/store"
