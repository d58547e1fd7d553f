#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CairnConnector under many requests at once: more than vLLM's own cache holds, so that it preempts, and more than the
store holds, so that it evicts from memory and from flash. Answers are compared, token for token, with those of an engine
without cairn; in float32.

    reference   without cairn
    first       everything is computed and saved
    second      everything is looked up; cairnd is killed in the middle of it
    third       the store is used again
"""
import os
import pathlib
import threading
import time

from lib_engine import MODEL, Cairnd, Engine, check, main

WORK = pathlib.Path(os.environ["WORK"])
STORE = WORK / "store"
REQUESTS, SHARED, PROMPT, ANSWER = 64, 256, 300, 100
OPTIONS = {"max_num_seqs": 64, "max_model_len": 1024}
processes: list = []


def started(process: object) -> object:
    processes.append(process)
    return process


def serve() -> Cairnd:
    return started(Cairnd(STORE, WORK / "cairnd.log", "--memory", "128M", "--admin", "off", "--segment", "32M",
                          f"--flash={STORE}:512M"))


def kill_after(cairnd: Cairnd, seconds: float) -> threading.Thread:
    def kill() -> None:
        time.sleep(seconds)
        cairnd.kill()
        time.sleep(seconds)
        serve()
    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test() -> None:
    reference = started(Engine("reference", MODEL, None, WORK / "reference.log", **OPTIONS))
    words = reference.ask(tokens=(pathlib.Path(os.environ["CAIRN_SOURCE"]) / "LICENSE").read_text())["ids"]
    # Half of them share their first blocks, half have nothing in common.
    prompts = [(words[:SHARED] if n % 2 else [n] + words[1:SHARED]) + [n + 100] + words[n:n + PROMPT - SHARED - 1]
               for n in range(REQUESTS)]
    expected = reference.ask(prompts=prompts, max_tokens=ANSWER)["answers"]
    check("it preempts", reference.ask(metrics=True).get("vllm:num_preemptions", 0) > 0)
    reference.kill()

    cairnd = serve()
    transfer = {"kv_connector": "CairnConnector", "kv_connector_module_path": "cairnkv.vllm", "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"store": f"unix:{STORE}/cairn.sock"}}
    engine = started(Engine("crowd", MODEL, transfer, WORK / "crowd.log", **OPTIONS))
    check("the first answers are those without cairn",
          engine.ask(prompts=prompts, max_tokens=ANSWER)["answers"] == expected)
    saved = engine.metric("save_blocks")
    check("blocks were saved", saved > 0)
    engine.empty()
    killer = kill_after(cairnd, 3)
    check("the answers are the same while cairnd is killed",
          engine.ask(prompts=prompts, max_tokens=ANSWER)["answers"] == expected)
    killer.join()
    engine.empty()
    before = engine.metric("load_bytes")
    check("the answers are the same afterwards", engine.ask(prompts=prompts, max_tokens=ANSWER)["answers"] == expected)
    check("the store was used again", engine.metric("load_bytes") > before)
    print("   " + ", ".join(f"{name} {engine.metric(name):.0f}" for name in (
        "lookups", "lookups_late", "found_tokens", "load_bytes", "load_failed_blocks", "save_blocks",
        "save_dropped_blocks", "save_failed_blocks")))


if __name__ == "__main__":
    main(test, processes)
