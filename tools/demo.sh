#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh - a conversation with a real model survives kill -9, and comes back from flash bit for bit.
#
#   tools/demo.sh [--quick] [--lengths "1024 2048 4096"] [--runs N] [--threads N] [--dir DIR] [--out FILE]
#                 [--program FILE]
#
# For each length of context, in processes of their own:
#
#   1. reference  reads a document, answers, answers a last question; nobody kills it. Its logits are the truth, and
#                 the time it takes to read everything once more is the price of having nothing kept.
#   2. keep       does the same up to the last question and saves its session in cairn. It is killed with SIGKILL.
#   3. resume     opens what is left, in a new process, and answers the last question: from flash, and, its context
#                 cleared, from cairn's memory. N times (3), each in a process of its own; the median counts.
#
# The demo fails unless the logits of each token are equal, bit for bit, in all of them. It prints seconds to the first
# token, bytes moved, and the rate of the restore beside its limit: the lower of what fio reads from the same file
# system (6 MiB blocks, O_DIRECT) and of llama.cpp's own set-state call, both measured in the same run. It leaves FILE
# (build/demo.json).
#
#   --quick         one short context, for tests
#   --threads N     of llama.cpp; default: all processors
#   --dir DIR       where stores and temporary files go, on a real disk; default: build/
#   --program FILE  this cairn-llama-demo; nothing is set up or built. MODEL names the model then.
#
# Exit: 0 identical, 1 not, or something failed (one line says what), 2 wrong usage.

set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf 'demo: %s\n' "$*"; }
fail() {
    printf 'demo: FAILED: %s\n' "$*" >&2
    exit 1
}

lengths=(1024 2048 4096)
runs=3
fio_s=2
dir=$source/build
out=$source/build/demo.json
program=
options=()
usage() {
    sed -n '6,7s/^# */usage: /p' "${BASH_SOURCE[0]}" | sed '2s/usage: /       /' >&2
    exit 2
}
while (($# > 0)); do
    case $1 in
    --quick)
        lengths=(512)
        runs=1
        fio_s=1
        ;;
    --lengths | --runs | --threads | --dir | --out | --program)
        (($# > 1)) || usage
        case $1 in
        --lengths) read -ra lengths <<<"$2" ;;
        --runs) runs=$2 ;;
        --threads) options+=(--threads "$2") ;;
        --dir) dir=$2 ;;
        --out) out=$2 ;;
        --program) program=$2 ;;
        esac
        shift
        ;;
    *) usage ;;
    esac
    shift
done
[[ ${#lengths[@]} -gt 0 && ${lengths[*]} =~ ^[0-9\ ]+$ && $runs =~ ^[1-9][0-9]*$ ]] || usage

# ---- set up ---------------------------------------------------------------------------------------------------------

keeper= # the one process that outlives a step
work=
clean_up() {
    local rc=$?
    if [[ -n $keeper ]]; then
        kill -9 "$keeper" 2>/dev/null || true
    fi
    if [[ -n $work ]]; then
        rm -rf "$work"
    fi
    exit "$rc"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

begin=$SECONDS
if [[ -z $program ]]; then
    say "setting up llama.cpp and the model"
    settings=$("$source/tools/setup-llama.sh" --print) || fail "llama.cpp could not be set up"
    eval "$settings"
    export PKG_CONFIG_PATH MODEL
    say "building"
    "$source/tools/build.sh" default
    program=$source/build/default/cairn-llama-demo
fi
[[ -x $program ]] || fail "there is no $program: the build did not find llama.cpp"
[[ -f ${MODEL:-} ]] || fail "MODEL does not name the model's file"
command -v fio >/dev/null || fail "fio is missing: run tools/setup.sh"
mkdir -p "$dir"
work=$(mktemp -d -p "$dir" demo.XXXXXX)
mkdir "$work/results"

# ---- steps ----------------------------------------------------------------------------------------------------------

# run NAME ARGUMENT...: one process, its JSON in $work/results/NAME.
run() {
    local name=$1
    shift
    "$program" "$@" "${options[@]}" --model "$MODEL" --json >"$work/results/$name" || fail "$1 of $name ended with status $?"
}

# GB/s that fio reads here, into $work/results/NAME; nothing where the file system has no O_DIRECT.
run_fio() {
    if ! fio --name=limit --filename="$work/fio" --size=512m --bs=6m --rw=randread --direct=1 --ioengine=libaio \
        --iodepth=4 --time_based --runtime="$fio_s" --output-format=json >"$work/results/$1" 2>"$work/fio.log"; then
        say "  fio can't read here with O_DIRECT: no limit to compare with ($(tail -n 1 "$work/fio.log"))"
        : >"$work/results/$1"
    fi
}

# Saves the session in a process of its own, and kills that without warning.
keep_and_kill() {
    local tokens=$1 rc=0 saved="$work/results/keep.$1"
    "$program" keep --store "$work/store" --session "demo-$tokens" --tokens "$tokens" --seed "$tokens" \
        "${options[@]}" --model "$MODEL" --json >"$saved" &
    keeper=$!
    until grep -qs '^stored$' "$saved"; do
        kill -0 "$keeper" 2>/dev/null || fail "keep of $tokens tokens ended before it had saved its session"
        sleep 0.1
    done
    kill -9 "$keeper"
    wait "$keeper" 2>/dev/null || rc=$?
    keeper=
    ((rc == 137)) || fail "the process that kept the session ended with status $rc, not by SIGKILL"
    say "  killed with SIGKILL, right after it had saved"
}

for tokens in "${lengths[@]}"; do
    say "context of $tokens tokens"
    say "  a process that is never killed"
    run "reference.$tokens" reference --tokens "$tokens" --seed "$tokens"
    say "  a process that saves its session"
    keep_and_kill "$tokens"
    for ((i = 1; i <= runs; i++)); do
        run_fio "fio.$tokens.$i"
        say "  a new process goes on ($i of $runs)"
        run "resume.$tokens.$i" resume --store "$work/store" --session "demo-$tokens" --tokens "$tokens" \
            --seed "$tokens"
    done
done

# ---- what it came to ------------------------------------------------------------------------------------------------

RESULTS=$work/results OUT=$out LENGTHS=${lengths[*]} RUNS=$runs SECONDS_ALL=$((SECONDS - begin)) python3 -B - <<'PYTHON'
import json
import os
import statistics
import sys

results, runs = os.environ["RESULTS"], int(os.environ["RUNS"])


def load(name):
    with open(os.path.join(results, name)) as file:
        text = file.read()
    return json.loads(text[text.index("{"):text.rindex("}") + 1]) if "{" in text else None


def fio_rate(name):
    answer = load(name)
    return answer["jobs"][0]["read"]["bw_bytes"] / 1e9 if answer else None


def check_same(tokens, truth, what, other):
    """The reason why `other` is not what the reference said, or None."""
    if other["first"] != truth["first"]:
        return f"{tokens} tokens, {what}: the logits of the first token differ from the process that was never killed"
    if other["ids"] != truth["ids"]:
        at = next((i for i, pair in enumerate(zip(other["ids"], truth["ids"])) if pair[0] != pair[1]), -1)
        return f"{tokens} tokens, {what}: token {at} of the answer differs"
    if other["all"] != truth["all"]:
        return f"{tokens} tokens, {what}: the tokens are equal, but the logits of a later one differ"
    return None


def point(tokens):
    truth, kept = load(f"reference.{tokens}"), load(f"keep.{tokens}")
    resumed = [load(f"resume.{tokens}.{i}") for i in range(1, runs + 1)]
    wrong = []
    for i, one in enumerate(resumed, 1):
        for tier in ("flash", "memory"):
            wrong.append(check_same(tokens, truth, f"resumed from {tier}, run {i}", one[tier]))
            if one[tier]["restored"] != kept["kept"]:
                wrong.append(f"{tokens} tokens, {tier}, run {i}: {one[tier]['restored']} of {kept['kept']} came back")
        if 0 < one["flash"]["device_bytes"] < one["flash"]["bytes"]:
            wrong.append(f"{tokens} tokens, run {i}: the device gave {one['flash']['device_bytes']} bytes only")
        if one["memory"]["flash_bytes"]:
            wrong.append(f"{tokens} tokens, run {i}: the second resume read from flash")

    def median(value, places=4):
        return round(statistics.median(value), places)

    fio = [fio_rate(f"fio.{tokens}.{i}") for i in range(1, runs + 1)]
    known = all(rate for rate in fio)
    limits = [min(f, r["set_state_gb_s"]) for f, r in zip(fio, resumed)] if known else []
    answer = {
        "context": int(tokens),
        "tokens": truth["tokens"],
        "restored_tokens": kept["kept"],
        "recompute_s": round(truth["recompute_s"], 4),
        "flash_s": median(r["flash"]["first_s"] for r in resumed),
        "memory_s": median(r["memory"]["first_s"] for r in resumed),
        "bytes": resumed[0]["flash"]["bytes"],
        "device_bytes": resumed[0]["flash"]["device_bytes"],
        "flash_restore_s": median(r["flash"]["load_s"] for r in resumed),
        "memory_restore_s": median(r["memory"]["load_s"] for r in resumed),
        "flash_gb_s": median(r["flash"]["gb_s"] for r in resumed),
        "memory_gb_s": median(r["memory"]["gb_s"] for r in resumed),
        "fio_gb_s": median(fio) if known else None,
        "set_state_gb_s": median(r["set_state_gb_s"] for r in resumed),
        "restore_ratio": median(r["flash"]["gb_s"] / limit for r, limit in zip(resumed, limits)) if known else None,
        "memory_ratio": median(r["memory"]["gb_s"] / r["set_state_gb_s"] for r in resumed),
        "save_s": kept["save_s"],
        "open_s": median(r["open_s"] for r in resumed),
        "live_s": truth["live_s"],
        "first_logits": truth["first"],
        "all_logits": truth["all"],
        "identical": not any(wrong),
    }
    return answer, [line for line in wrong if line], truth


def print_points(points):
    print()
    print("  Seconds to the first token of the last answer, and the restore's rate beside its limit")
    print()
    print("   tokens  recompute     flash    memory    moved   restore |    fio  set-state   ratio | memory")
    print("                   s         s         s       MB      GB/s |   GB/s       GB/s         |   GB/s")
    for p in points:
        fio = f"{p['fio_gb_s']:6.2f}" if p["fio_gb_s"] else "     -"
        ratio = f"{p['restore_ratio']:6.2f}" if p["restore_ratio"] else "     -"
        print(f"   {p['tokens']:6,}  {p['recompute_s']:9.2f} {p['flash_s']:9.3f} {p['memory_s']:9.3f} "
              f"{p['bytes'] / 1e6:8.1f}  {p['flash_gb_s']:8.2f} | {fio} {p['set_state_gb_s']:10.2f}  {ratio} |"
              f" {p['memory_gb_s']:6.2f}")
    print()
    print("  Restoring is a part of that; the rest is reading the last question, which no cache holds:")
    for p in points:
        print(f"   {p['tokens']:6,}  from flash {p['flash_restore_s'] * 1e3:.0f} ms, from memory "
              f"{p['memory_restore_s'] * 1e3:.0f} ms; first token {p['recompute_s'] / p['flash_s']:.0f} times sooner "
              "than by recompute")


# KV bytes per token (bf16), and the rate from which loading beats computing: one H100, bf16, half of its peak.
# Computed, from the models' shapes.
GPU = (("Llama-3.1-8B", 131072, {8192: 3.6, 32768: 2.6}),
       ("Llama-3.1-70B", 327680, {8192: 1.07, 32768: 0.88}),
       ("DeepSeek-V3", 70272, {8192: 0.37, 32768: 0.22}))
NVME_GB_S = 14


def print_gpu(points):
    flash, memory = points[-1]["flash_gb_s"], points[-1]["memory_gb_s"]
    print()
    print("  What such rates mean for a real GPU: seconds that a restore saves for each resumed session, against")
    print("  computing it on one H100 (bf16, half of its peak; computed, not measured). Below the break-even rate,")
    print(f"  computing is faster. Flash here: {flash:.2f} GB/s; memory here: {memory:.2f} GB/s; one PCIe 5 NVMe "
          f"drive: {NVME_GB_S} GB/s.")
    print()
    print("   model           tokens    KV GB  recompute  break-even | saved at this flash  this memory  one NVMe")
    print("                                            s        GB/s |                   s            s         s")

    def saved(size, rate, recompute_s):
        return f"{recompute_s - size / rate:.2f}" if size / rate < recompute_s else "none"

    for name, token_bytes, rates in GPU:
        for tokens, rate in rates.items():
            size = token_bytes * tokens / 1e9
            recompute_s = size / rate
            print(f"   {name:14s} {tokens:7,} {size:8.2f} {recompute_s:10.2f} {rate:11.2f} | "
                  f"{saved(size, flash, recompute_s):>19s} {saved(size, memory, recompute_s):>12s} "
                  f"{saved(size, NVME_GB_S, recompute_s):>9s}")


def main():
    points, wrong = [], []
    for tokens in os.environ["LENGTHS"].split():
        p, reasons, truth = point(tokens)
        points.append(p)
        wrong += reasons
    print_points(points)
    print_gpu(points)
    print()
    print("  The last answer,", "of the process that was never killed:" if wrong else "of all processes alike:")
    print("   ", json.dumps(truth["text"]))
    print()
    with open(os.environ["OUT"] + ".new", "w") as file:
        json.dump({"identical": not wrong, "points": points, "reasons": wrong, "runs": runs,
                   "seconds": int(os.environ["SECONDS_ALL"])}, file, indent=1)
        file.write("\n")
    os.replace(os.environ["OUT"] + ".new", os.environ["OUT"])
    for line in wrong:
        print(f"demo: FAILED: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    tokens = sum(len(load(f"reference.{t}")["ids"]) for t in os.environ["LENGTHS"].split())
    print(f"demo: identical: {2 * runs * tokens} tokens after a resume have the logits, bit for bit, of a process that "
          "was never killed")


main()
PYTHON
say "took $((SECONDS - begin)) s; figures in ${out#"$PWD"/}"
