#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cairn key and cairn explain on description files: all golden vectors, and what is wrong in a file is said with its line.
. "$(dirname "$0")/lib.sh"
cd "$T" || exit 1

# Each case of keys.txt becomes a description file and one run for each chain.
running="the golden vectors"
python3 - "$CAIRN" "$CAIRN_SOURCE/tests/golden/keys.txt" >out 2>err <<'PYTHON' || fail "golden vectors"
import json, subprocess, sys

program, vectors = sys.argv[1:]
bad = ran = 0

def run(*arguments, data=b""):
    global ran
    ran += 1
    done = subprocess.run([program, "key", *arguments, "--json"], input=data, capture_output=True)
    if done.returncode:
        print(done.stderr.decode())
        return {}
    return json.loads(done.stdout)

def expect(what, got, wanted):
    global bad
    if got != wanted:
        bad += 1
        print(f"{what}: {got}, not {wanted}")

def fill(length, seed):
    return bytes((seed + i + (i >> 8)) & 255 for i in range(length))

def case(name, lines):
    text, groups, parts = "# " + name + "\n", 0, 0
    chains, files, wanted = [], [], {}
    for word, rest in lines:
        fields = rest.split()
        if word == "group":
            text += f"groups[{groups}] = {fields[0]}, block_tokens {fields[1]}, rule {fields[2]}, " \
                    f"trailing_tokens {fields[3]}, block_bytes {fields[4]}\n"
            groups += 1
        elif word == "part":
            text += f"parts[{parts}] = {fields[0]}" + ", replicated" * int(fields[1]) + ", optional" * int(fields[2]) + "\n"
            parts += 1
        elif word == "field":
            value = "" if fields[1] == "-" else fields[1]
            escaped = "".join("\\x" + value[i:i + 2] for i in range(0, len(value), 2))
            text += f'field {fields[0]} = "{escaped}"\n'
        elif word in ("space", "weights_digest"):
            wanted[word] = rest
        elif word == "start":
            chains.append({"group": rest, "extras": [], "tokens": [], "hashes": [], "bytes": b"", "keys": []})
        elif word == "root":
            chains[-1]["root"] = rest
        elif word == "extra":
            chains[-1]["extras"] += ["--extra", fields[0] + ":" + ("" if fields[1] == "-" else fields[1])]
        elif word == "tokens":
            chains[-1]["tokens"] += map(int, fields)
        elif word == "ramp":
            first, count, step = map(int, fields)
            chains[-1]["tokens"] += [(first + i * step) % 2**32 for i in range(count)]
        elif word == "hash":
            chains[-1]["hashes"] += ["--hash", rest]
        elif word == "bytes":
            chains[-1]["bytes"] += fill(*map(int, fields))
        elif word == "key":
            chains[-1]["keys"].append(rest)
        elif word == "tail":
            chains[-1]["tail"] = fields[1]
        elif word == "file":
            path = rest.split('"')[1]
            with open(path, "wb") as file:
                file.write(fill(*map(int, rest.split('"')[2].split())))
            files.append(path)
        elif word not in ("canon", "session", "tenant_digest", "session_id", "manifest_key", "manifest_space"):
            text += f"{word} = {rest}\n"
    with open("case.space", "w") as file:
        file.write(text)
    if "space" in wanted:
        expect(name, run("case.space").get("space"), wanted["space"])
        # As text and back.
        with open("text.space", "w") as file:
            file.write(run("case.space", "--text").get("text", ""))
        expect(name + " as text", run("text.space").get("space"), wanted["space"])
    for chain in chains:
        arguments, data = ["case.space", "--group", chain["group"]] + chain["extras"] + chain["hashes"], b""
        if chain["tokens"]:
            arguments += ["--tokens", "-"]
            data = json.dumps(chain["tokens"]).encode()
        elif chain["bytes"]:
            arguments += ["--file", "-"]
            data = chain["bytes"]
        got = run(*arguments, data=data)
        expect(name + " root", got.get("root"), chain["root"])
        expect(name + " keys", got.get("keys"), chain["keys"])
        expect(name + " tail", got.get("tail"), chain.get("tail"))
    if files:
        expect(name, run("--weights", *files).get("weights"), wanted["weights_digest"])

cases = []
for line in open(vectors, encoding="utf-8"):
    word, _, rest = line.rstrip("\n").partition(" ")
    if word == "case":
        cases.append((rest, []))
    elif word and word[0] != "#":
        cases[-1][1].append((word, rest))
for name, lines in cases:
    case(name, lines)
print(f"{len(cases)} cases, {ran} runs, {bad} bad")
sys.exit(bad != 0 or len(cases) < 20)
PYTHON

cat >a.space <<'SPACE'
# A comment, an empty line, blanks.

  model = Qwen3-8B
weights = 1111111111111111111111111111111111111111111111111111111111111111
kv_dtype = bf16
block_tokens = 4
SPACE
run 0 "$CAIRN" key a.space
prints '^space [0-9a-f]{64}$'
quiet
echo 1 2 3 4 5 6 >tokens
run 0 "$CAIRN" key a.space --tokens tokens
prints '^key   [0-9a-f]{64}  0$'
prints '^tail  [0-9a-f]{64}  2 tokens$'
mv out first
printf '[1,\n2, 3,4]\n5\t6' >tokens
run 0 "$CAIRN" key a.space --tokens tokens
same out first
run 0 "$CAIRN" key - --tokens tokens <a.space
same out first

# The digest of weights is a line of a description.
head -c 100000 /dev/zero >model.safetensors
run 0 "$CAIRN" key --weights model.safetensors
prints '^weights = [0-9a-f]{64}$'
quiet
run 2 "$CAIRN" key --weights model.safetensors missing.safetensors
says 'missing.safetensors: No such file'

# What is wrong is said with its line.
wrong()
{
	printf 'kv_dtype = bf16\n%b\nblock_tokens = 4\n' "$1" >wrong.space
	run 2 "$CAIRN" key wrong.space
	says "$2"
}
wrong 'modle = x' 'wrong.space:2: there is no field "modle"; did you mean "model"'
wrong 'zzz = x' 'wrong.space:2: there is no field "zzz"; write "field zzz = VALUE"'
wrong 'just words' 'wrong.space:2: "=" is missing'
wrong 'kv_dtype = f16' 'wrong.space:2: kv_dtype is given twice'
wrong 'layers = many' 'wrong.space:2: layers: "many" is not a number'
wrong 'layers = 3 # so' 'comments stand on lines of their own'
wrong 'layers = 4294967296' 'wrong.space:2: layers'
wrong 'weights = 11' 'wrong.space:2: weights: "11" is not 64 hexadecimal digits'
wrong 'generation = xyz' 'wrong.space:2: generation'
wrong 'model = "open' 'wrong.space:2: the closing " is missing'
wrong 'model = "a" b' 'wrong.space:2: "b" is left over'
wrong 'model = "\\x0"' 'wrong.space:2: after a'
wrong 'model = "\\x00"' 'wrong.space:2: model has a 0 byte'
wrong 'model = a\0b' 'wrong.space:2: a 0 byte'
wrong 'groups[1] = a, block_tokens 4' 'wrong.space:2: groups\[1\] stands where groups\[0\]'
wrong 'groups[0] = a, rule some' 'wrong.space:2: rule some; known are all, trailing, snapshot'
wrong 'groups[0] = a, tokens 3' 'wrong.space:2: a group has no "tokens"'
wrong 'parts[0] = a, doubled' 'wrong.space:2: a part has no "doubled"'
wrong 'field a = 1\nfield a = 2' 'wrong.space:3: field a is given twice'
wrong 'tenant = ""' 'wrong.space: space: tenant is empty'
wrong 'scheme = none/1' 'wrong.space: space: scheme is "none/1"'
head -c 2000000 /dev/urandom >wrong.space
run 2 "$CAIRN" key wrong.space
run 2 "$CAIRN" key "$T"
says 'Is a directory'
run 2 "$CAIRN" key a.space --tokens missing
says 'missing: No such file'
echo '1 2 x' >tokens
run 2 "$CAIRN" key a.space --tokens tokens
says 'tokens:1: "x" is not part of a token'
echo 4294967296 >tokens
run 2 "$CAIRN" key a.space --tokens tokens
says 'tokens:1: a token above 4294967295'
run 2 "$CAIRN" key a.space --extra 0:00
says '--extra without --tokens'
run 2 "$CAIRN" key a.space --group 3
run 2 "$CAIRN" key a.space --hash 00000000000000000000000000000000
run 2 "$CAIRN" key - --tokens -
says 'both the description and the tokens'

# Names and values of whatever bytes survive as text.
cat >odd.space <<'SPACE'
kv_dtype = bf16
block_tokens = 4
tenant = "a | b, \"c\" \\ (d)"
model = x=y # z
field "a = b" = c
field "n \x01" = "\x00\xff\x0a#"
field empty = ""
parts[0] = "all, of it"
parts[1] = rest, replicated, optional
SPACE
run 0 "$CAIRN" key odd.space
head -1 out | cut -c7- >odd.id
run 0 "$CAIRN" key odd.space --text
cp out again.space
run 0 "$CAIRN" key again.space
prints "^space $(cat odd.id)\$"
run 0 "$CAIRN" explain odd.space again.space

# Which fields differ.
sed 's/bf16/f16/; s/Qwen3-8B/Qwen3 | 8B/' a.space >b.space
run 0 "$CAIRN" explain a.space a.space
prints '^the same space$'
run 1 "$CAIRN" explain a.space b.space
prints '^kv_dtype: bf16 \| f16$'
prints '^model: Qwen3-8B \| "Qwen3 \| 8B"$'
quiet
run 1 "$CAIRN" explain a.space b.space --json
json 'j["same"] is False and len(j["differences"]) == 2 and j["a"] != j["b"]'
run 0 "$CAIRN" explain a.space a.space --json
json 'j["same"] is True and j["a"] == j["b"]'
run 2 "$CAIRN" explain a.space missing.space
says 'missing.space: No such file'
finish
