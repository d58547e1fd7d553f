#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Second implementation of docs/KEY.md, written from that document alone, on hashlib alone.

    make_keys.py            writes the golden vectors to stdout
    make_keys.py --check    exit status 1 if keys.txt beside this file differs, or docs/KEY.md shows another vector
    make_keys.py --corpus   writes the seeds of tests/fuzz/fuzz_space.c

Make a change of the vectors on purpose only: they are what stores on disk were written with.
"""
import hashlib
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
RULES = {"all": 0, "trailing": 1, "snapshot": 2}


def u16(n):
    return struct.pack("<H", n)


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def sha(data):
    return hashlib.sha256(data).digest()


# ---- parts 2 and 3: descriptions ------------------------------------------------------------------------------------

SCALARS = [("tenant", 1, "string"), ("scheme", 2, "string"), ("model", 3, "string"), ("weights", 4, "raw"),
           ("adapter", 5, "raw"), ("adapter_scale", 6, "decimal"), ("kv_dtype", 7, "string"), ("quant", 8, "string"),
           ("layers", 9, "number"), ("kv_heads", 10, "number"), ("head_size", 11, "number"), ("layout", 12, "string"),
           ("rope", 13, "string"), ("isa", 14, "string"), ("generation", 15, "raw")]
DEFAULTS = {"tenant": "default", "scheme": "tokens/1"}


def decimal(text):
    match = re.fullmatch(r"([+-]?)(\d*)(?:\.(\d*))?", text, re.ASCII)
    assert match and (match[2] or match[3]) and len(text) <= 64, text
    whole = match[2].lstrip("0") or "0"
    fraction = (match[3] or "").rstrip("0")
    number = whole + ("." + fraction if fraction else "")
    return ("-" if match[1] == "-" and number != "0" else "") + number


def tagged(tag, value):
    return u16(tag) + u32(len(value)) + value


def number_field(tag, n):
    return tagged(tag, u64(n)) if n else b""


def listed(elements):
    return b"".join(u32(len(element)) + element for element in elements)


def canonical(d):
    out = b"cairnSP\0" + u32(1)
    for name, tag, kind in SCALARS:
        value = d.get(name)
        if kind == "number":
            out += number_field(tag, value or 0)
        elif value is not None and value != DEFAULTS.get(name):
            if kind == "decimal":
                value = decimal(value)
            out += tagged(tag, value if kind == "raw" else value.encode())
    groups = d.get("groups") or [(None, d.get("block_tokens", 0), "all", 0, d.get("block_bytes", 0))]
    elements = []
    for name, tokens, rule, trailing, size in groups:
        name = "kv" if name is None else name
        elements.append((tagged(1, name.encode()) if name != "kv" else b"") + number_field(2, tokens) +
                        number_field(3, RULES[rule]) + number_field(4, trailing) + number_field(5, size))
    if elements != [b""]:
        out += tagged(16, listed(elements))
    elements = []
    for name, replicated, optional in d.get("parts") or [(None, 0, 0)]:
        name = "all" if name is None else name
        elements.append((tagged(1, name.encode()) if name != "all" else b"") + number_field(2, replicated) +
                        number_field(3, optional))
    if elements != [b""]:
        out += tagged(17, listed(elements))
    named, unknown = {}, {}
    for name, value in d.get("fields", []):
        if name.startswith("tag:"):
            unknown[int(name[4:])] = value
        else:
            named[name.encode()] = value
    if named:
        out += tagged(18, listed(tagged(1, name) + tagged(2, named[name]) for name in sorted(named)))
    for tag in sorted(unknown):
        out += tagged(tag, unknown[tag])
    return out


def space_id(d):
    return sha(b"cairnSPC" + canonical(d))


# ---- parts 4 to 7: keys ---------------------------------------------------------------------------------------------

class Chain:
    """One group's chain; takes a whole prompt at once and cuts it afterwards."""

    def __init__(self, d, group):
        self.space, self.group = space_id(d), group
        groups = d.get("groups") or [(None, d.get("block_tokens", 0))]
        self.block_tokens = groups[group][1]
        self.root = self.parent = sha(b"cairnROT" + self.space + u32(group))
        self.tokens, self.extras, self.done = [], [], 0

    def counted(self, first, count):
        """Counts, tokens and extras of a run of the prompt."""
        extras = [(at - first, value) for at, value in self.extras if first <= at < first + count]
        return (u32(count) + u32(len(extras)) + b"".join(u32(t) for t in self.tokens[first:first + count]) +
                b"".join(u32(at) + u32(len(value)) + value for at, value in extras))

    def take(self, tokens, extras):
        self.tokens += tokens
        self.extras += extras
        keys = []
        while self.done + self.block_tokens <= len(self.tokens):
            self.parent = sha(b"cairnBLK" + self.parent + self.counted(self.done, self.block_tokens))
            self.done += self.block_tokens
            keys.append(self.parent)
        return keys

    def tail(self):
        count = len(self.tokens) - self.done
        return count, sha(b"cairnTAL" + self.space + u32(self.group) + self.parent + self.counted(self.done, count))

    def hash(self, value):
        self.parent = sha(b"cairnENG" + self.space + bytes(24) + u32(self.group) + u32(len(value)) + value)
        return self.parent

    def bytes(self, data):
        self.parent = sha(b"cairnFIL" + self.parent + u32(len(data)) + sha(data))
        return self.parent


def session(tenant, owner, name, epoch):
    tenant_digest = sha(b"cairnTEN" + tenant.encode())
    owner, name = owner.encode(), name.encode()
    session_id = sha(b"cairnSES" + tenant_digest + u32(len(owner)) + owner + u32(len(name)) + name)
    return (tenant_digest, session_id, sha(b"cairnMAN" + session_id + u64(epoch)), sha(b"cairnMSP" + tenant_digest))


def weights_digest(files):
    out = b"cairnWTS" + u64(len(files))
    for name, data in sorted((name.encode(), data) for name, data in files):
        out += u32(len(name)) + name + u64(len(data)) + sha(data)
    return sha(out)


# ---- part 9: the vectors --------------------------------------------------------------------------------------------

def pattern(length, seed):
    return bytes((seed + i + (i >> 8)) & 255 for i in range(length))


def quoted(text):
    if text is None:
        return "-"
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in text.encode()) + '"'


def hexed(data):
    return data.hex() if data else "-"


class Case:
    def __init__(self, name, note, **description):
        self.d, self.chain, self.files = description, None, []
        self.extras = []
        self.name = name
        self.lines = ["", f"# {note}", f"case {name}"]
        for field, _, kind in SCALARS:
            value = description.get(field)
            if value is not None:
                shown = value if kind == "number" else hexed(value) if kind == "raw" else quoted(value)
                self.lines.append(f"{field} {shown}")
        for field in ("block_tokens", "block_bytes"):
            if field in description:
                self.lines.append(f"{field} {description[field]}")
        for group_name, *rest in description.get("groups", []):
            self.lines.append(f"group {quoted(group_name)} " + " ".join(map(str, rest)))
        for part_name, *rest in description.get("parts", []):
            self.lines.append(f"part {quoted(part_name)} " + " ".join(map(str, rest)))
        for field_name, value in description.get("fields", []):
            self.lines.append(f"field {quoted(field_name)} {hexed(value)}")

    def say(self, *words):
        self.lines.append(" ".join(str(w) for w in words))
        return self

    def space(self):
        return self.say("canon", canonical(self.d).hex()).say("space", space_id(self.d).hex())

    def start(self, group=0):
        self.chain = Chain(self.d, group)
        return self.say("start", group).say("root", self.chain.root.hex())

    def extra(self, token, value):
        self.extras.append((token, value))
        return self.say("extra", token, hexed(value))

    def keys(self, keys):
        for key in keys:
            self.say("key", key.hex())
        return self

    def tokens(self, *tokens):
        self.say("tokens", *tokens)
        extras, self.extras = self.extras, []
        return self.keys(self.chain.take(list(tokens), extras))

    def ramp(self, first, count, step):
        self.say("ramp", first, count, step)
        extras, self.extras = self.extras, []
        return self.keys(self.chain.take([(first + i * step) % (1 << 32) for i in range(count)], extras))

    def tail(self):
        count, key = self.chain.tail()
        return self.say("tail", count, key.hex())

    def hash(self, value):
        return self.say("hash", hexed(value)).keys([self.chain.hash(value)])

    def bytes(self, length, seed):
        return self.say("bytes", length, seed).keys([self.chain.bytes(pattern(length, seed))])

    def session(self, owner, name, epoch):
        self.say("session", quoted(owner), quoted(name), epoch)
        results = session(self.d.get("tenant") or "default", owner, name, epoch)
        for word, value in zip(("tenant_digest", "session_id", "manifest_key", "manifest_space"), results):
            self.say(word, value.hex())
        return self

    def file(self, name, length, seed):
        self.files.append((name, pattern(length, seed)))
        return self.say("file", quoted(name), length, seed)

    def weights(self):
        return self.say("weights_digest", weights_digest(self.files).hex())


W1, W2, A1, A2 = (bytes([n]) * 32 for n in (0x11, 0x22, 0xa1, 0xa2))
GENERATION = bytes(range(16))
IMAGE = bytes(range(32))
SMALL = dict(weights=W1, kv_dtype="bf16", block_tokens=4)
FULL = dict(tenant="acme", model="Qwen3-8B", weights=W1, adapter=A1, adapter_scale="0.5", kv_dtype="fp8_e4m3",
            quant="per-head scales", layers=36, kv_heads=8, head_size=128, layout="L,KV,H,T,D", rope="theta=1000000",
            isa="amx", generation=GENERATION,
            groups=[("full", 16, "all", 0, 0), ("window", 16, "trailing", 4096, 65536),
                    ("state", 4096, "snapshot", 0, 0)],
            parts=[("rank0", 0, 0), ("rank1", 0, 0), ("indexer", 1, 0), ("draft", 0, 1)],
            fields=[("vllm.lookahead", u32(0)), ("note", b""), ("tag:40", b"later")])
VLLM = "vllm/sha256/" + sha(b"vllm-none-hash").hex()


def cases():
    yield (Case("tokens/small", "The smallest useful space; two blocks and a tail.", **SMALL).space().start()
           .tokens(1, 2, 3, 4, 5, 6, 7, 8, 9, 10).tail())
    yield (Case("tokens/defaults", "Defaults written out: the same space as tokens/small.", tenant="default",
                scheme="tokens/1", weights=W1, kv_dtype="bf16", layers=0, groups=[("kv", 4, "all", 0, 0)],
                parts=[("all", 0, 0)]).space())
    yield (Case("tokens/no-weights", "Weights unknown: a space in which everything misses.", kv_dtype="bf16",
                block_tokens=4).space().start().tokens(1, 2, 3, 4))
    yield Case("tokens/empty", "Absent is not empty.", **SMALL, model="", quant="", layout="", rope="", isa="").space()
    yield (Case("tokens/full", "Every field; three groups, of which the second and third begin here.", **FULL).space()
           .start(1).ramp(1000, 40, 1).tail().start(2).ramp(1000, 4100, 1).tail())
    yield (Case("tokens/utf8", "Strings are bytes: é as one character and as two are two spaces.", **SMALL,
                tenant="caf\u00e9", model="cafe\u0301 \U0001f600").space())
    for text in ("0.5", "0.50", ".5", "+00.500", "1.0", "-0", "-01.250", "10"):
        yield Case(f"scale/{text}", "One spelling of a scale.", **SMALL, adapter=A1, adapter_scale=text).space()
    yield Case("adapter/none-said", "An adapter without a scale.", **SMALL, adapter=A2).space()
    yield (Case("extras/none", "No extra ...", **SMALL).start().tokens(*range(1, 13)))
    yield (Case("extras/empty", "... is not an empty one ...", **SMALL).start().extra(0, b"").tokens(*range(1, 13)))
    yield (Case("extras/one", "... nor one with a byte.", **SMALL).start().extra(0, b"\0").tokens(*range(1, 13)))
    yield (Case("extras/second-block", "An image in block 2: block 1 is that of extras/none.", **SMALL).start()
           .extra(5, IMAGE).tokens(*range(1, 13)))
    yield (Case("extras/several", "A salt, two at one token, one in the tail; cut between.", **SMALL).start()
           .extra(0, b"salt of a user").extra(3, IMAGE).extra(3, b"").tokens(7, 7, 7, 7, 7).tail()
           .extra(6, b"x" * 700).tokens(7, 7, 7, 7).tail())
    yield (Case("tokens/large", "Blocks of 256 tokens, the largest token, wrap-around.", weights=W2, kv_dtype="f16",
                block_tokens=256).space().start().ramp(4294967295, 600, 2654435761).tail())
    yield (Case("tokens/one", "Blocks of one token.", weights=W2, kv_dtype="f16", block_tokens=1).start().tokens(0, 0))
    yield (Case("vllm", "An engine's own hashes: no parents.", scheme=VLLM, weights=W1, kv_dtype="bf16",
                groups=[("full", 16, "all", 0, 0), ("window", 16, "trailing", 512, 0)]).space().start(0)
           .hash(sha(b"block 0")).hash(sha(b"block 1")).start(1).hash(sha(b"block 1")))
    yield (Case("sglang", "Another engine.", scheme="sglang/1", weights=W1, kv_dtype="bf16", block_tokens=64).space()
           .start().hash(sha(b"page 0")))
    yield (Case("lmcache", "Another, with hashes of 16 and of 64 bytes.", scheme="lmcache/blake3/mp", weights=W1,
                kv_dtype="bf16", block_tokens=256).space().start().hash(bytes(16)).hash(bytes(64)))
    yield (Case("file", "A file of 2 MiB and 5 bytes.", scheme="file/1").space().start().bytes(MIB, 0).bytes(MIB, 1)
           .bytes(5, 2))
    yield Case("file/bytes", "A file space that fixes its blocks' size.", scheme="file/1", block_bytes=65536).space()
    yield (Case("session", "Sessions of a tenant.", **SMALL, tenant="acme").session("", "chat", 1)
           .session("bob", "chat", 1).session("bob", "chat", 256).session("bobc", "hat", 1))
    yield Case("session/default", "Of the default tenant.", **SMALL).session("", "a", 1)
    yield (Case("weights", "Files sort by the bytes of their names.", **SMALL).file("model-00002.safetensors", 1000, 3)
           .file("model-00001.safetensors", 70000, 9).file("Z.safetensors", 0, 0).weights())


def vectors():
    head = """# SPDX-License-Identifier: Apache-2.0
# Golden vectors of docs/KEY.md (part 9 says how to read this). Written by make_keys.py; stores depend on every byte.
"""
    return head + "".join("\n".join(case.lines) + "\n" for case in cases())


def check():
    text = vectors()
    with open(os.path.join(HERE, "keys.txt"), encoding="utf-8") as file:
        if file.read() != text:
            sys.exit("keys.txt is not what make_keys.py makes")
    with open(os.path.join(ROOT, "docs", "KEY.md"), encoding="utf-8") as file:
        shown = re.findall(r"\b[0-9a-f]{64,}\b", file.read())
    for value in shown:
        if value not in text and value != sha(b"vllm-none-hash").hex():
            sys.exit(f"docs/KEY.md shows {value}, which is not in keys.txt")
    if len(shown) < 20:
        sys.exit("docs/KEY.md shows hardly any vectors")


def corpus():
    """Canonical forms of all cases, and a few that must be refused."""
    folder = os.path.join(ROOT, "tests", "fuzz", "corpus", "space")
    os.makedirs(folder, exist_ok=True)
    forms = {case.name: canonical(case.d) for case in cases()}
    good = forms["tokens/full"]
    forms["bad/written-default"] = good[:12] + tagged(1, b"default") + good[12 + 10:]
    forms["bad/tag-twice"] = forms["tokens/small"] + forms["tokens/small"][12:]
    forms["bad/version"] = good[:8] + u32(2) + good[12:]
    forms["bad/length"] = good[:14] + u32(0xffffffff) + good[18:]
    forms["bad/zero-byte"] = good.replace(b"Qwen3", b"Qw\0n3")
    forms["bad/cut"] = good[:-3]
    seen = set()
    for name, form in sorted(forms.items()):
        if form not in seen:
            with open(os.path.join(folder, re.sub(r"[^\w.-]", "_", name)), "wb") as file:
                file.write(form)
        seen.add(form)


def main():
    if sys.argv[1:] == ["--check"]:
        check()
    elif sys.argv[1:] == ["--corpus"]:
        corpus()
    elif not sys.argv[1:]:
        sys.stdout.write(vectors())
    else:
        sys.exit(__doc__)


main()
