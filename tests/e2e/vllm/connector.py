#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CairnConnector with a real model, in float32, where the same prompt gives the same text however it was computed.

Three engines, one store behind a cairnd:
  1  computes an answer; is killed
  2  goes on from the store, the answer's own blocks included; then one byte of the flash is turned; cairnd is killed while
     a load is under way, and comes back
  3  other weights in the same directory: finds nothing, and `cairn explain` says why. Its store is a directory, for which it
     starts a cairnd
"""
import json
import mmap
import os
import pathlib
import shutil
import signal
import time

import cairnkv
from lib_engine import MODEL, Cairnd, Engine, Failed, cairn, check, eventually, main

WORK = pathlib.Path(os.environ["WORK"])
STORE, PATH = WORK / "store", WORK / "model"
PROMPT, ANSWER, BLOCK = 1100, 64, 128
processes: list = []


def started(process: object) -> object:
    processes.append(process)
    return process


def serve() -> Cairnd:
    return started(Cairnd(STORE, WORK / "cairnd.log", "--memory", "512M", "--admin", "off", "--segment", "64M",
                          f"--flash={STORE}:2G"))


def engine(name: str, store: str = f"unix:{STORE}/cairn.sock", **options: object) -> Engine:
    transfer = {"kv_connector": "CairnConnector", "kv_connector_module_path": "cairnkv.vllm", "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"store": store, "load_timeout_ms": 20_000}}
    return started(Engine(name, PATH, transfer, WORK / f"engine-{name}.log", **options))


def other_weights() -> None:
    """Puts a model of the same shape, type and name, but for one tensor, where the first one was."""
    from safetensors.torch import load_file, save_file
    tensors = load_file(PATH / "model.safetensors")
    tensors["model.layers.10.mlp.down_proj.weight"] *= 0.5
    save_file(tensors, PATH / "new", metadata={"format": "pt"})
    os.replace(PATH / "new", PATH / "model.safetensors")


def turn_one_byte(block: int) -> None:
    """In the flash of a store that nobody has open: the middle of that block of the session."""
    with cairnkv.Store(STORE) as store:
        session = store.resume("talk")
        bytes_ = store.read(session.space(), session.chains[0][block])
    with open(STORE / "flash.cairn", "r+b") as file, mmap.mmap(file.fileno(), 0) as flash:
        middle = bytes_[len(bytes_) // 2:][:4096]  # the first layers know little of what came before
        at = flash.find(middle)
        check("the block lies in the flash, once", at >= 0 and flash.find(middle, at + 1) < 0)
        flash[at + 100] ^= 0x10
        flash.flush()


def spaces() -> list:
    listed = json.loads(cairn("ls", STORE, "--spaces", "--json"))
    return sorted(space["id"] for space in listed["spaces"])


def is_used(two: Engine, prompt: list) -> None:
    def once() -> bool:
        before = two.metric("load_bytes")
        two.fresh(prompt, 1)
        return two.metric("load_bytes") > before
    eventually("the store is used again", once, 120)


def kill_during_load(two: Engine, cairnd: Cairnd, prompt: list, text: list) -> Cairnd:
    """Stops and kills cairnd as soon as a load begins; again until it struck one, the text being right each time."""
    for _ in range(8):
        failed = two.metric("load_failed_blocks")
        is_used(two, prompt)
        two.empty()
        with open(two.log, "rb") as log:
            log.seek(0, os.SEEK_END)
            two.send(prompt=prompt, max_tokens=ANSWER)
            said = b""
            while b"cairn: loads " not in said and not two.has_answered():
                said = said[-100:] + log.read()
        cairnd.kill(signal.SIGSTOP)
        time.sleep(0.1)
        cairnd.kill()
        check("the text is the same where cairnd was killed", two.read()["ids"] == text)
        cairnd = serve()
        if two.metric("load_failed_blocks") > failed:
            return cairnd
    raise Failed("no load was under way when cairnd was killed")


def test() -> None:
    shutil.copytree(MODEL, PATH)
    cairnd = serve()

    one = engine("one")
    licence = (pathlib.Path(os.environ["CAIRN_SOURCE"]) / "LICENSE").read_text()
    prompt = one.ask(tokens=licence)["ids"][:PROMPT]
    cold = one.run(prompt, ANSWER, session="talk", ttl_s=3600)
    check("nothing was there at first", cold["cached"] == 0)
    blocks = (PROMPT + ANSWER - 1) // BLOCK
    eventually("cairn lists the session", lambda: "talk" in cairn("session", STORE, "list"))
    check("prompt and answer are saved", one.metric("save_blocks") == blocks)
    check("one session was saved", one.metric("sessions_saved") == 1)
    one.kill()

    two = engine("two")
    again = two.run(prompt, ANSWER)
    check("the prompt came from the store", again["cached"] == PROMPT // BLOCK * BLOCK)
    check("the text is that of the first engine", again["ids"] == cold["ids"])
    check("bytes were counted", two.metric("load_bytes") > 40e6 and two.metric("load_failed_blocks") == 0)
    longer = prompt + cold["ids"] + prompt[:80]
    check("the answer's blocks came as well", two.fresh(longer, 1)["cached"] == blocks * BLOCK)
    stat = json.loads(cairn("stat", STORE, "--json"))
    check("cairn stat shows the hits", stat["tiers"][0]["hit_bytes"] > 40e6)

    cairnd.kill(signal.SIGTERM)
    turn_one_byte(3)
    cairnd = serve()
    check("the text is the same with a damaged block", two.fresh(prompt, ANSWER)["ids"] == cold["ids"])
    check("one block was damaged", two.metric("load_damaged_blocks") == 1)
    bad = two.metric("load_failed_blocks")
    eventually("the blocks are saved anew", lambda: two.fresh(prompt, 1)["cached"] == PROMPT // BLOCK * BLOCK and
               two.metric("load_failed_blocks") == bad)

    cairnd = kill_during_load(two, cairnd, prompt, cold["ids"])
    is_used(two, prompt)
    check("the text is the same when cairnd is back", two.fresh(prompt, ANSWER)["ids"] == cold["ids"])
    two.kill()

    known = spaces()
    cairnd.kill(signal.SIGTERM)
    other_weights()
    three = engine("three", str(STORE))
    foreign = three.run(prompt, ANSWER)
    check("other weights find nothing", foreign["cached"] == 0 and three.metric("found_tokens") == 0)
    check("and write another text", foreign["ids"] != cold["ids"])
    eventually("they have a space of their own", lambda: len(spaces()) == len(known) + 1)
    new = (set(spaces()) - set(known)).pop()
    for name, space in (("a", known[0]), ("b", new)):
        (WORK / f"{name}.space").write_text(cairn("ls", STORE, "--spaces", space))
    said = cairn("explain", WORK / "a.space", WORK / "b.space", status=1)
    check(f"cairn explain names the field: {said}", "weights" in said and "kv_dtype" not in said)


if __name__ == "__main__":
    main(test, processes)
