#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CairnTier under vLLM's own tiered offloading, beside vLLM's file tier, with a real model in float32. On CPUs vLLM lacks
the copy between engine and primary tier; vllm_cpu_spec.py is that copy, and nothing else is changed.

Five engines:
  1  keeps an answer in both tiers; is killed
  2  CairnTier alone: goes on from the store; a block that was damaged is computed, and saved anew
  3  CairnConnector, the other face: goes on from the same blocks
  4  other weights in the same directory, the file tier alone: it serves them the foreign bytes
  5  the same with CairnTier: nothing
"""
import os
import pathlib
import shutil
import signal

import cairnkv
from connector import ANSWER, BLOCK, PATH, PROMPT, STORE, WORK, other_weights, processes, serve, started, turn_one_byte
from connector import engine as connector_engine
from lib_engine import MODEL, Engine, cairn, check, eventually, main

FILES = WORK / "files"
CAIRN_TIER = {"type": "CairnTier", "module_path": "cairnkv.vllm", "store": f"unix:{STORE}/cairn.sock"}
FILE_TIER = {"type": "fs", "root_dir": str(FILES)}
WHOLE = PROMPT // BLOCK * BLOCK
PRIMARY_BLOCKS = (256 << 20) // 5898240


def engine(name: str, *tiers: dict) -> Engine:
    transfer = {"kv_connector": "CairnTierConnector", "kv_connector_module_path": "cairnkv.vllm", "kv_role": "kv_both",
                "kv_connector_extra_config": {"spec_name": "CpuTieringSpec", "spec_module_path": "vllm_cpu_spec",
                                              "cpu_bytes_to_use": PRIMARY_BLOCKS * 5898240, "secondary_tiers": list(tiers)}}
    return started(Engine(name, PATH, transfer, WORK / f"engine-{name}.log"))


def there() -> set:
    """Which of the session's blocks the store has in a tier."""
    with cairnkv.Store(f"unix:{STORE}/cairn.sock") as store:
        session = store.resume("talk")
        space = session.space()
        return {number for number, key in enumerate(session.chains[0])
                if store.explain(space, key).reason == cairnkv.Reason.PRESENT}


def test() -> None:
    shutil.copytree(MODEL, PATH)
    cairnd = serve()

    one = engine("one", FILE_TIER, CAIRN_TIER)
    licence = (pathlib.Path(os.environ["CAIRN_SOURCE"]) / "LICENSE").read_text()
    prompt = one.ask(tokens=licence)["ids"][:PROMPT]
    cold = one.run(prompt, ANSWER, session="talk")
    check("nothing was there at first", cold["cached"] == 0)
    eventually("cairn lists the session", lambda: one.run(prompt[:2], 1) and "talk" in cairn("session", STORE, "list"))
    eventually("the file tier has its files", lambda: len(list(FILES.rglob("*.bin"))) >= WHOLE // BLOCK)
    one.kill()

    two = engine("two", CAIRN_TIER)
    again = two.run(prompt, ANSWER)
    check("the prompt came from the store", again["cached"] == WHOLE and again["ids"] == cold["ids"])
    check("bytes were counted", two.metric("tier_load_bytes") > 40e6)
    for first in range(PRIMARY_BLOCKS // (PROMPT // BLOCK) + 1):  # push it out of the primary tier
        two.run([first] + prompt[1:], 1)
    cairnd.kill(signal.SIGTERM)
    turn_one_byte(3)
    serve()
    check("the text is the same with a damaged block", two.fresh(prompt, ANSWER)["ids"] == cold["ids"])
    check("a block of it did not come", two.metric("tier_load_failed_blocks") > 0)
    eventually("what was damaged is saved anew", lambda: two.run([1, 2], 1) and 3 in there())
    two.kill()

    three = connector_engine("three")
    other_face = three.run(prompt, ANSWER)
    check("the other face finds the blocks of this one, the one saved anew included", other_face["cached"] > 3 * BLOCK)
    check("they came whole", three.metric("load_bytes") > 20e6 and three.metric("load_failed_blocks") == 0)
    check("its text is the same", other_face["ids"] == cold["ids"])
    three.kill()

    other_weights()
    four = engine("four", FILE_TIER)
    foreign = four.run(prompt, ANSWER)
    check("vLLM's file tier serves the bytes of other weights", foreign["cached"] == WHOLE)
    four.kill()
    five = engine("five", CAIRN_TIER)
    own = five.run(prompt, ANSWER)
    check("CairnTier has nothing for them", own["cached"] == 0)
    check("and what the file tier led to is another text", own["ids"] != foreign["ids"])


if __name__ == "__main__":
    main(test, processes)
