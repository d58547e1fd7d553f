#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# llama.cpp with a real model: the quick demo; blocks of a shorter prompt serve a longer one; damaged flash costs
# time and never changes a word; every setting that shapes the KV has a space of its own.
set -euo pipefail

demo=$CAIRN_BUILD/cairn-llama-demo
if [[ ! -x $demo || ! -f ${MODEL:-} ]]; then
    echo "no cairn-llama-demo, or MODEL is not set (tools/setup-llama.sh): skipped"
    exit 77
fi
work=$(mktemp -d)
export CAIRN_CACHE=$work/cache # digests of models
trap 'rm -rf "$work"' EXIT
store=$work/store

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# prompt NAME ARGUMENT...: one prompt in a process of its own; its JSON in $work/NAME.
prompt() {
    local name=$1
    shift
    "$demo" prompt --model "$MODEL" --store "$store" --threads 1 --predict 12 --json "$@" >"$work/$name" 2>"$work/log" ||
        fail "prompt $name: $(tail -n 1 "$work/log")"
}

# expect NAME EXPRESSION: a Python expression over the fields of $work/NAME, and over others as files["NAME"].
expect() {
    WORK=$work python3 -B - "$1" "$2" <<'PYTHON' || fail "$1: not so: $2"
import json, os, sys

class Files(dict):
    def __missing__(self, name):
        with open(os.path.join(os.environ["WORK"], name)) as file:
            return json.load(file)

files = Files()
me = files[sys.argv[1]]


def same(other):
    return all(me[key] == files[other][key] for key in ("first", "all", "ids"))


if not eval(sys.argv[2], {"files": files, "same": same}, me):
    print({k: v for k, v in me.items() if k != "ids"}, file=sys.stderr)
    sys.exit(1)
PYTHON
}

# damage FIRST-TOKEN: turns one bit in the middle of each copy on flash of the block that begins at that token.
damage() {
    python3 -B - "$store/flash.cairn" "$1" <<'PYTHON' || fail "no block of token $1 on flash"
import mmap, os, struct, sys

# The head of a state: magic, sequence 0, one stream, 256 cells, the first position.
head = struct.pack("<IiIIi", 0xaf143cd8, 0, 1, 256, int(sys.argv[2]))
found = 0
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_:
    at = bytes_.find(head)
    while at >= 0:
        bytes_[at + 3_000_001] ^= 0x10
        found += 1
        at = bytes_.find(head, at + 1)
    bytes_.flush()
    os.fsync(file.fileno())
sys.exit(found == 0)
PYTHON
}

echo "== the demo, short"
"$CAIRN_SOURCE/tools/demo.sh" --quick --threads 1 --program "$demo" --dir "$work" --out "$work/demo.json" >"$work/demo.log" 2>&1 ||
    fail "the demo: $(tail -n 3 "$work/demo.log")"
expect demo.json 'identical and points[0]["tokens"] > 512 and points[0]["flash_s"] < points[0]["recompute_s"]'

echo "== a longer prompt goes on from a shorter one's blocks"
prompt short --tokens 520
expect short 'restored == 0 and new_blocks == 2'
prompt pure --tokens 1000 --no-store
prompt longer --tokens 1000
expect longer 'restored == 512 and new_blocks == 1 and had_blocks == 2 and same("pure")'
prompt again --tokens 1000
expect again 'restored == 768 and new_blocks == 0 and flash_bytes == bytes and same("pure")'
prompt exact --tokens 768
expect exact 'restored == 767 and lost == 0'
prompt exact-pure --tokens 768 --no-store
expect exact 'same("exact-pure")'

echo "== damaged flash: less is restored, the rest is computed, the words are the same"
damage 256
prompt damaged --tokens 1000
expect damaged 'restored == 256 and lost == 1 and same("pure")'
prompt mended --tokens 1000
expect mended 'restored == 768 and lost == 0 and same("pure")'
for first in 0 256 512; do damage "$first"; done
prompt ruined --tokens 1000
expect ruined 'restored == 0 and same("pure")'
prompt whole --tokens 1000
expect whole 'restored == 768 and lost == 0 and same("pure")'

echo "== two sessions that share a prefix share its bytes"
prompt session-a --tokens 1000 --session a
expect session-a 'new_blocks == 0 and new_bytes < 6000000 and had_blocks == 3'
prompt session-b --tokens 1100 --session b
expect session-b 'restored == 768 and new_blocks == 1 and had_blocks == 3 and new_bytes < 8000000'

echo "== other settings: nothing of it is served, and the first are served again afterwards"
others=('--kv-type q8_0' '--kv-type bf16' '--flash-attn off' '--rope-base 20000' '--block 128')
for i in "${!others[@]}"; do
    read -ra other <<<"${others[i]}"
    prompt "other-$i" --tokens 520 "${other[@]}"
    expect "other-$i" 'restored == 0 and lost == 0 and had_blocks == 0'
    prompt "other-again-$i" --tokens 520 "${other[@]}"
    expect "other-again-$i" "restored == 512 and same('other-$i')"
done
prompt back --tokens 1000
expect back 'restored == 768 and same("pure")'

echo "== a session of other settings is not there, and the message says what differs"
if "$demo" resume --model "$MODEL" --store "$store" --session a --kv-type q8_0 >/dev/null 2>"$work/log"; then
    fail "a session of f16 was resumed with q8_0"
fi
grep -q "kv_dtype = f16.*here: .*kv_dtype = q8_0" "$work/log" || fail "unclear: $(cat "$work/log")"

echo "== settings that can't be are refused in words"
for bad in '--kv-type f99 unknown' '--block 65536 fewer'; do
    read -r name value word <<<"$bad"
    if "$demo" prompt --model "$MODEL" --store "$store" "$name" "$value" >/dev/null 2>"$work/log"; then
        fail "$name $value was accepted"
    fi
    grep -q "$word" "$work/log" || fail "unclear: $(cat "$work/log")"
done
echo "ok"
