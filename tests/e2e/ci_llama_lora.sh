#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# LoRA adapters and their scales are part of what a block is: without one, with one at two scales, and with two, each
# has its own blocks, whose words come back bit for bit. And models whose state can't be cut into blocks are refused
# in words.
set -euo pipefail

demo=$CAIRN_BUILD/cairn-llama-demo
if [[ ! -x $demo || ! -f ${MODEL:-} ]]; then
    echo "no cairn-llama-demo, or MODEL is not set (tools/setup-llama.sh): skipped"
    exit 77
fi
work=$(mktemp -d)
export CAIRN_CACHE=$work/cache # digests of models
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Adapters with random weights for the keys of a few layers, and a tiny recurrent model.
python3 -B - "$work" <<'PYTHON'
import random, struct, sys

STRING, U32, F32, ARRAY, I32 = 8, 4, 6, 9, 5


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def field(key, kind, value):
    if kind == ARRAY:
        inner, items = value
        body = struct.pack("<IQ", inner, len(items))
        body += b"".join(text(i) if inner == STRING else struct.pack("<f" if inner == F32 else "<i", i) for i in items)
    else:
        body = text(value) if kind == STRING else struct.pack("<f" if kind == F32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + body


def write(path, fields, tensors, seed):
    """A GGUF file, version 3, of f32 tensors [(name, shape)]."""
    rng = random.Random(seed)
    infos, data = b"", b""
    for name, shape in tensors:
        count = 1
        for length in shape:
            count *= length
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += struct.pack(f"<{count}f", *(rng.uniform(-0.3, 0.3) for _ in range(count)))
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(field(*f) for f in fields) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


for name, seed in (("one", 1), ("two", 2)):
    write(f"{sys.argv[1]}/{name}.gguf",
          [("general.type", STRING, "adapter"), ("general.architecture", STRING, "llama"),
           ("adapter.type", STRING, "lora"), ("adapter.lora.alpha", F32, 8.0)],
          [(f"blk.{layer}.attn_k.weight.lora_{side}", shape) for layer in (3, 9, 15)
           for side, shape in (("a", (576, 4)), ("b", (4, 192)))], seed)

WIDTH, INNER, STATE, CONV, RANK, WORDS = 64, 128, 16, 4, 4, 32
write(f"{sys.argv[1]}/recurrent.gguf",
      [("general.architecture", STRING, "mamba"), ("general.name", STRING, "tiny"), ("mamba.context_length", U32, 512),
       ("mamba.embedding_length", U32, WIDTH), ("mamba.block_count", U32, 1), ("mamba.feed_forward_length", U32, 0),
       ("mamba.attention.head_count", U32, 0), ("mamba.attention.layer_norm_rms_epsilon", F32, 1e-5),
       ("mamba.ssm.conv_kernel", U32, CONV), ("mamba.ssm.inner_size", U32, INNER), ("mamba.ssm.state_size", U32, STATE),
       ("mamba.ssm.time_step_rank", U32, RANK), ("tokenizer.ggml.model", STRING, "llama"),
       ("tokenizer.ggml.tokens", ARRAY, (STRING, [f"t{i}" for i in range(WORDS)])),
       ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * WORDS)),
       ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [1] * (WORDS - 3)))],
      [("token_embd.weight", (WIDTH, WORDS)), ("output_norm.weight", (WIDTH,)), ("blk.0.attn_norm.weight", (WIDTH,)),
       ("blk.0.ssm_in.weight", (WIDTH, 2 * INNER)), ("blk.0.ssm_conv1d.weight", (CONV, INNER)),
       ("blk.0.ssm_conv1d.bias", (INNER,)), ("blk.0.ssm_x.weight", (INNER, RANK + 2 * STATE)),
       ("blk.0.ssm_dt.weight", (RANK, INNER)), ("blk.0.ssm_dt.bias", (INNER,)), ("blk.0.ssm_a", (STATE, INNER)),
       ("blk.0.ssm_d", (INNER,)), ("blk.0.ssm_out.weight", (INNER, WIDTH))], 3)
PYTHON

# prompt NAME ARGUMENT...: one prompt in a process of its own; its JSON in $work/NAME.
prompt() {
    local name=$1
    shift
    "$demo" prompt --model "$MODEL" --store "$work/store" --threads 1 --predict 12 --tokens 520 --json "$@" >"$work/$name" \
        2>"$work/log" || fail "prompt $name: $(tail -n 1 "$work/log")"
}

one=$work/one.gguf two=$work/two.gguf
prompt none
prompt full --lora "$one"
prompt half --lora "$one=0.5"
prompt both --lora "$one=0.5" --lora "$two=0.25"
prompt swapped --lora "$one=0.25" --lora "$two=0.5"
prompt none.again
prompt full.again --lora "$one=1.0"
prompt half.again --lora "$one=0.50"
prompt both.again --lora "$two=0.25" --lora "$one=0.5"
prompt swapped.again --lora "$one=0.25" --lora "$two=0.5"

WORK=$work python3 -B - <<'PYTHON' || fail "blocks of one adapter served another, or were not served"
import json, os, sys

names = ("none", "full", "half", "both", "swapped")
first, again = ([json.load(open(f"{os.environ['WORK']}/{name}{end}")) for name in names] for end in ("", ".again"))
bad = False
for name, f, a in zip(names, first, again):
    # The order in which two adapters are added may change bits, so there the words must do.
    same = f["ids"] == a["ids"] and (name == "both" or f["all"] == a["all"])
    if f["restored"] != 0 or a["restored"] != 512 or not same:
        print(name, f, a, sep="\n", file=sys.stderr)
        bad = True
if len({f["all"] for f in first}) != len(names):
    print("the adapters change nothing: this proves nothing", [f["all"] for f in first], file=sys.stderr)
    bad = True
sys.exit(bad)
PYTHON

if "$demo" prompt --model "$work/recurrent.gguf" --store "$work/store" --tokens 20 >/dev/null 2>"$work/log"; then
    fail "a recurrent model was accepted"
fi
grep -q "not supported: it is recurrent" "$work/log" || fail "unclear: $(cat "$work/log")"
echo "ok"
