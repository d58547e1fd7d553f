#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sessions of llama.cpp over a restart: twenty of them, room in memory for three, kill -9, and each goes on as it
# would have; two models of equal shape in one store, A, B, A again: each has its own, also under one name.
set -euo pipefail

demo=$CAIRN_BUILD/cairn-llama-demo
if [[ ! -x $demo || ! -f ${MODEL:-} ]]; then
    echo "no cairn-llama-demo, or MODEL is not set (tools/setup-llama.sh): skipped"
    exit 77
fi
work=$(mktemp -d)
export CAIRN_CACHE=$work/cache # digests of models
keeper=
clean_up() {
    if [[ -n $keeper ]]; then
        kill -9 "$keeper" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# keep MODEL STORE OUT ARGUMENT...: saves sessions in a process of its own, and kills that.
keep() {
    local model=$1 store=$2 out=$3
    shift 3
    "$demo" sessions --model "$model" --store "$store" --threads 1 --predict 8 "$@" >"$out" 2>"$work/log" &
    keeper=$!
    until grep -qs '^stored$' "$out"; do
        kill -0 "$keeper" 2>/dev/null || fail "sessions were not saved: $(tail -n 1 "$work/log")"
        sleep 0.1
    done
    kill -9 "$keeper"
    wait "$keeper" 2>/dev/null || true
    keeper=
    sed -i '/^stored$/d' "$out"
}

resume() {
    local model=$1 store=$2 out=$3
    shift 3
    "$demo" sessions --resume --model "$model" --store "$store" --threads 1 --predict 8 "$@" >"$out" 2>"$work/log" ||
        fail "resuming: $(tail -n 1 "$work/log")"
}

# compare BEFORE AFTER: each session goes on with the same logits, and all of it but the last token was restored.
compare() {
    python3 -B - "$1" "$2" <<'PYTHON' || fail "$2 is not what $1 was"
import json, sys

before, after = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
bad = len(before) != len(after)
for b, a in zip(before, after):
    same = all(b[key] == a[key] for key in ("session", "tokens", "first", "all", "ids"))
    if not same or a["restored"] != a["tokens"] - 1 or a["lost"] or a["tail"] != (a["tokens"] - 1) % 256:
        print("before", b, "after", a, sep="\n", file=sys.stderr)
        bad = True
sys.exit(bad)
PYTHON
}

echo "== twenty sessions, room in memory for three, kill -9"
options=(--tokens 300 --count 20 --memory-mib 24 --budget-mib 512)
keep "$MODEL" "$work/many" "$work/many.before" "${options[@]}"
resume "$MODEL" "$work/many" "$work/many.after" "${options[@]}"
compare "$work/many.before" "$work/many.after"
used_mib=$(du -sm "$work/many" | cut -f1)
((used_mib <= 512 + 2)) || fail "the store takes $used_mib MiB; its budget is 512"
resume "$MODEL" "$work/many" "$work/many.again" "${options[@]}"
compare "$work/many.before" "$work/many.again"

echo "== models of equal shape in one store: A, B, A again"
# One bit of a weight makes another model.
other=$work/$(basename "$MODEL")
cp "$MODEL" "$other"
python3 -B - "$other" <<'PYTHON'
import sys

with open(sys.argv[1], "r+b") as file:
    for share in (0.5, 0.6, 0.7, 0.8):
        file.seek(int(file.seek(0, 2) * share))
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
PYTHON
options=(--tokens 300 --count 3)
keep "$MODEL" "$work/two" "$work/a.before" "${options[@]}"
if "$demo" sessions --resume --model "$other" --store "$work/two" "${options[@]}" >"$work/none" 2>"$work/log"; then
    fail "model B resumed a session of model A"
fi
grep -q "no session 'session-0' for this model.*weights = .*here: weights = " "$work/log" ||
    fail "unclear: $(cat "$work/log")"
keep "$other" "$work/two" "$work/b.before" "${options[@]}"
python3 -B -c 'import json, sys
sys.exit(any(json.loads(line)["restored"] for line in open(sys.argv[1])))' "$work/b.before" ||
    fail "model B was given blocks of model A"
if cmp -s "$work/a.before" "$work/b.before"; then
    fail "the other model says the same: it proves nothing"
fi
resume "$MODEL" "$work/two" "$work/a.after" "${options[@]}"
compare "$work/a.before" "$work/a.after"
resume "$other" "$work/two" "$work/b.after" "${options[@]}"
compare "$work/b.before" "$work/b.after"

echo "== an empty directory, and a session that is not there"
if "$demo" resume --model "$MODEL" --store "$work/new" --session none >/dev/null 2>"$work/log"; then
    fail "a session that was never saved was resumed"
fi
grep -q "no session 'none'" "$work/log" || fail "unclear: $(cat "$work/log")"

echo "== a chat that goes on in another process"
for question in "What is a cairn?" "And who builds them?"; do
    "$demo" chat --model "$MODEL" --store "$work/chat" --session c --threads 1 --predict 12 <<<"$question" >>"$work/chat.log" ||
        fail "chat"
done
grep -q "\[session c: .* tokens restored" "$work/chat.log" || fail "the chat began anew: $(cat "$work/chat.log")"
echo "ok"
