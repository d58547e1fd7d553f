#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo_vllm.py [--quick] [--lengths "1024 2048 ..."] [--runs N] [--dir DIR] [--out FILE] - see demo-vllm.sh

A conversation of growing length over the OpenAI API, in float32, where the words do not depend on what was cached:

    1  reference  one server without cairn holds all of it; nobody kills it. It also tells, for each turn, what it takes to
                  compute it and what vLLM's own prefix cache makes of it.
    2  A          a server with cairn (CairnConnector, a cairnd) holds the first half. It is killed with SIGKILL.
    3  B          a new server, with its own cairnd, whose memory and flash are empty, goes on. A's cairnd is its peer.
                  Then each turn again, with vLLM's own cache emptied: from the memory of B's cairnd, and from its flash.
    4  file tier  vLLM's own tiered offloading with its file tier, and
    5  CairnTier  the same with cairn below it.

It fails unless the words of each turn are the same everywhere. For each turn it prints the median of N runs (3) of the time
to the first token, and the CPU seconds of the engine's processes and of cairnd; and it leaves FILE (build/demo-vllm.json).
On CPUs vLLM lacks the copy between engine and primary tier that 4 and 5 need: tests/e2e/vllm/vllm_cpu_spec.py is that copy.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SOURCE = pathlib.Path(os.environ["CAIRN_SOURCE"])
CAIRN, PYTHON, MODEL = os.environ["CAIRN"], os.environ["VLLM_PYTHON"], os.environ["VLLM_MODEL"]
ANSWER = 24
BLOCK = 128
KV_TOKEN_BYTES = 46080
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "2",
               "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "1", "VLLM_SERVER_DEV_MODE": "1"}
started: list = []


class Failed(Exception):
    pass


def say(text: str) -> None:
    print(f"demo-vllm: {text}", flush=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """In a session of its own, so that what it starts ends with it."""

    def __init__(self, command: list, log: pathlib.Path, **how: object) -> None:
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True, **how)
        started.append(self)

    def kill(self, sign: int = signal.SIGKILL) -> None:
        try:
            os.killpg(self.process.pid, sign)
        except ProcessLookupError:
            pass
        self.process.wait(timeout=120)
        if sign != signal.SIGKILL:
            self.kill()

    def cpu_s(self) -> float:
        """User and system seconds of all processes of its session."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                words = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(words[3]) == self.process.pid:
                ticks += int(words[11]) + int(words[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class Cairnd(Process):
    def __init__(self, directory: pathlib.Path, *options: str) -> None:
        log = directory.with_suffix(".log")
        before = log.stat().st_size if log.exists() else 0
        super().__init__([CAIRN, "serve", "--dir", str(directory), "--memory", "2G", "--segment", "64M", "--admin", "off",
                          f"--flash={directory}:6G", *options], log)
        until = time.monotonic() + 120
        while b"ready" not in log.read_bytes()[before:]:
            if self.process.poll() is not None or time.monotonic() > until:
                raise Failed(f"cairnd did not start: {log.read_text()[-500:]}")
            time.sleep(0.1)


class Server(Process):
    """vllm serve; `store`: its cairnd, for the CPU seconds."""

    def __init__(self, name: str, transfer: object, work: pathlib.Path, store: object = None) -> None:
        self.name, self.store, self.port = name, store, free_port()
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--served-model-name", "m",
                   "--host", "127.0.0.1", "--port", str(self.port), "--dtype", "float32", "--enforce-eager",
                   "--max-model-len", "8192", "--seed", "0", "--disable-uvicorn-access-log",
                   "--enable-prompt-tokens-details"]
        if transfer:
            command += ["--kv-transfer-config", json.dumps(transfer)]
        path = os.pathsep.join([os.environ["CAIRNKV_PATH"], str(SOURCE / "tests/e2e/vllm")])
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}
        began = time.monotonic()
        super().__init__(command, work / f"{name}.log", env=environment)
        while True:
            try:
                self.call("/health")
                break
            except (OSError, urllib.error.URLError):
                if self.process.poll() is not None or time.monotonic() - began > 600:
                    raise Failed(f"server {name} did not start: {self.log.read_text()[-2000:]}") from None
                time.sleep(0.2)
        say(f"server {name} is up after {time.monotonic() - began:.0f} s")

    def call(self, path: str, body: object = None, method: str = "GET") -> object:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"},
                                         method="POST" if data else method)
        return urllib.request.urlopen(request, timeout=600)

    def reset(self, external: bool = False) -> None:
        """Empties vLLM's own prefix cache, and `external`: its primary tier as well. It refuses while blocks wait for their saves."""
        until = time.monotonic() + 60
        query = "?reset_external=true" if external else ""
        while not json.loads(self.call(f"/reset_prefix_cache{query}", method="POST").read())["success"]:
            if time.monotonic() > until:
                raise Failed(f"server {self.name} does not empty its own cache")
            time.sleep(0.05)

    def ask(self, prompt: list, tokens: int = ANSWER, session: str = "") -> dict:
        """Words, their tokens, seconds to the first of them, CPU seconds, and how many tokens were not computed."""
        body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "return_token_ids": True, "stream_options": {"include_usage": True}}
        if session:
            body["kv_transfer_params"] = {"cairn": {"session": session, "ttl_s": 3600}}
        cpu, store_cpu = self.cpu_s(), self.store.cpu_s() if self.store else 0
        began, first, text, ids, cached = time.monotonic(), 0.0, "", [], 0
        for line in self.call("/v1/completions", body):
            if not line.startswith(b"data: {"):
                continue
            said = json.loads(line[6:])
            for choice in said["choices"]:
                first = first or time.monotonic() - began
                text += choice["text"]
                ids += choice.get("token_ids") or []
            usage = said.get("usage")
            if usage:
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        if not ids:
            raise Failed(f"server {self.name} gave no answer: {self.log.read_text()[-2000:]}")
        return {"text": text, "ids": ids, "ttft_s": first, "cached": cached, "cpu_s": self.cpu_s() - cpu,
                "cairnd_cpu_s": (self.store.cpu_s() if self.store else 0) - store_cpu}

    def metric(self, name: str) -> float:
        text = self.call("/metrics").read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.split("\n") if line.startswith(f"vllm:cairn_{name}_total"))


def connector(store: object) -> dict:
    return {"kv_connector": "CairnConnector", "kv_connector_module_path": "cairnkv.vllm", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"store": str(store)}}


def tiered(tier: dict) -> dict:
    return {"kv_connector": "CairnTierConnector", "kv_connector_module_path": "cairnkv.vllm", "kv_role": "kv_both",
            "kv_connector_extra_config": {"spec_name": "CpuTieringSpec", "spec_module_path": "vllm_cpu_spec",
                                          "cpu_bytes_to_use": 1 << 30, "secondary_tiers": [tier]}}


class Demo:
    def __init__(self, lengths: list, runs: int, work: pathlib.Path) -> None:
        self.lengths, self.runs, self.work = lengths, runs, work
        self.prompts: list = []
        self.answers: list = []
        self.table: dict = {}

    def same(self, who: str, turn: int, got: dict) -> None:
        if got["ids"][:ANSWER] != self.answers[turn]:
            raise Failed(f"turn {turn + 1} of {who}: other words: {got['text']!r}")

    def measure(self, column: str, turn: int, do: object) -> None:
        """The median of `runs` times of a turn that is asked for one token."""
        runs = [do() for _ in range(self.runs)]
        middle = sorted(runs, key=lambda run: run["ttft_s"])[len(runs) // 2]
        cell = {name: statistics.median(run[name] for run in runs) for name in ("ttft_s", "cpu_s", "cairnd_cpu_s")}
        self.table.setdefault(turn, {})[column] = {**cell, "cached": middle["cached"]}

    def reference(self) -> None:
        server = Server("reference", None, self.work)
        text = "".join((SOURCE / name).read_text() for name in ("LICENSE", "docs/SERVE.md", "docs/KEY.md", "docs/CLI.md"))
        body = server.call("/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False})
        words = json.loads(body.read())["tokens"]
        server.ask(words[:1000], 1)  # the first makes what the engine makes once
        prompt: list = []
        for turn, length in enumerate(self.lengths):  # what was said so far, and what is said next
            prompt = prompt + words[len(prompt):length]
            self.prompts.append(prompt)
            got = server.ask(prompt)
            self.answers.append(got["ids"])

            def cold(prompt: list = prompt) -> dict:
                server.reset()
                return server.ask(prompt, 1)
            self.measure("recompute", turn, cold)
            self.measure("prefix hit", turn, lambda prompt=prompt: server.ask(prompt, 1))
            prompt = prompt + got["ids"]
        server.kill()

    def move(self) -> None:
        half = max(1, len(self.lengths) // 2)
        port = free_port()
        at_a = Cairnd(self.work / "a", "--listen", f"tcp+plain://127.0.0.1:{port}")
        a = Server("A", connector(self.work / "a"), self.work, at_a)
        for turn in range(half):
            self.same("server A", turn, a.ask(self.prompts[turn], session="talk"))
        self.settle(a, self.work / "a", half - 1)
        a.kill()
        say("server A is killed")
        at_b = Cairnd(self.work / "b", "--peer", f"tcp+plain://127.0.0.1:{port}")
        b = Server("B", connector(self.work / "b"), self.work, at_b)
        b.ask(list(range(1000, 1300)), 1)  # makes what an engine makes once
        for turn in range(half):
            got = b.ask(self.prompts[turn], session="talk")
            self.same("server B, from A's cairnd", turn, got)
            self.table[turn]["from the peer"] = {name: got[name] for name in ("ttft_s", "cpu_s", "cairnd_cpu_s", "cached")}
        for turn in range(half, len(self.lengths)):
            self.same("server B", turn, b.ask(self.prompts[turn], session="talk"))
        self.settle(b, self.work / "b", len(self.lengths) - 1)
        at_a.kill()
        for turn, prompt in enumerate(self.prompts):
            self.from_store(b, "connector, memory", turn, prompt)
        for turn, prompt in enumerate(self.prompts):
            def from_flash(prompt: list = prompt) -> dict:
                b.store.kill(signal.SIGTERM)  # its memory goes with it
                b.store = Cairnd(self.work / "b")
                b.reset()
                b.ask(list(range(2000, 2300)), 1)  # connections are made again
                return b.ask(prompt, 1)
            self.measure("connector, flash", turn, from_flash)
        if b.metric("load_failed_blocks"):
            say(f"note: {b.metric('load_failed_blocks'):.0f} blocks did not come in time and were computed")
        b.kill()
        b.store.kill(signal.SIGTERM)

    def from_store(self, server: Server, column: str, turn: int, prompt: list) -> None:
        server.reset()
        self.same(f"{column} of server {server.name}", turn, server.ask(prompt))

        def load() -> dict:
            server.reset()
            return server.ask(prompt, 1)
        self.measure(column, turn, load)

    def settle(self, server: Server, store: pathlib.Path, turn: int) -> None:
        """Until the session holds the whole of that turn."""
        blocks = (len(self.prompts[turn]) + ANSWER - 1) // BLOCK
        until = time.monotonic() + 60
        while True:
            shown = subprocess.run([CAIRN, "session", str(store), "list", "--json"], capture_output=True, text=True)
            sessions = json.loads(shown.stdout or '{"sessions": []}')["sessions"]
            if any(session["tokens"] >= blocks * BLOCK for session in sessions):
                return
            if time.monotonic() > until:
                raise Failed(f"server {server.name} did not save its session: {shown.stdout}")
            time.sleep(0.2)

    def tiers(self) -> None:
        files = self.work / "files"
        store = Cairnd(self.work / "t")
        for column, tier, at in (("file tier", {"type": "fs", "root_dir": str(files)}, None),
                                 ("CairnTier", {"type": "CairnTier", "module_path": "cairnkv.vllm",
                                                "store": str(self.work / "t")}, store)):
            first = Server(column.replace(" ", "-"), tiered(tier), self.work, at)
            for turn, prompt in enumerate(self.prompts):
                self.same(column, turn, first.ask(prompt))
            time.sleep(3)  # it tells nobody when its stores are done; what is missing is seen in `cached`
            for turn, prompt in enumerate(self.prompts):
                def load(prompt: list = prompt, first: Server = first) -> dict:
                    first.reset(external=True)
                    return first.ask(prompt, 1)
                if column == "CairnTier":
                    continue
                self.measure(column, turn, load)
            first.kill()
            if column == "CairnTier":
                self.tier_after_start(column, tier, at)

    def tier_after_start(self, column: str, tier: dict, at: Cairnd) -> None:
        """CairnTier takes another generation after a reset, so its loads are those of a new server, one for each turn."""
        server = Server("CairnTier-2", tiered(tier), self.work, at)
        server.ask(list(range(1000, 1300)), 1)
        for turn, prompt in enumerate(self.prompts):
            server.reset()
            got = server.ask(prompt, 1)
            self.table[turn][column] = {name: got[name] for name in ("ttft_s", "cpu_s", "cairnd_cpu_s", "cached")}
        server.kill()

    def report(self, out: pathlib.Path) -> None:
        columns = ["recompute", "prefix hit", "file tier", "CairnTier", "connector, memory", "connector, flash",
                   "from the peer"]
        print(f"\n{'':22}" + "".join(f"{f'{len(prompt)} tokens':>22}" for prompt in self.prompts))
        print(f"{'time to first token':22}" + f"{'s (cached) CPU s':>22}" * len(self.prompts))
        for column in columns:
            line = f"{column:22}"
            for turn in range(len(self.prompts)):
                cell = self.table[turn].get(column)
                cpu = cell and cell["cpu_s"] + cell["cairnd_cpu_s"]
                line += f"{cell['ttft_s']:8.3f} ({cell['cached']:4}) {cpu:6.2f}" if cell else f"{'-':>22}"
            print(line)
        last = self.table[len(self.prompts) - 1]
        ratio = last["connector, memory"]["ttft_s"] / last["prefix hit"]["ttft_s"]
        print(f"\nat {len(self.prompts[-1])} tokens ({len(self.prompts[-1]) * KV_TOKEN_BYTES / 1e6:.0f} MB): from memory "
              f"{ratio:.2f} x vLLM's own prefix hit, {last['recompute']['ttft_s'] / last['connector, memory']['ttft_s']:.0f} "
              f"times as fast as computing\n")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"lengths": [len(prompt) for prompt in self.prompts], "runs": self.runs,
                                   "turns": [self.table[turn] for turn in range(len(self.prompts))]}, indent=1) + "\n")
        say(f"the same words in every turn, on every server; figures in {out}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--quick", action="store_true", help="two short turns")
    options.add_argument("--lengths", default="1024 2048 4096 8000")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--dir", type=pathlib.Path, default=SOURCE / "build")
    options.add_argument("--out", type=pathlib.Path, default=SOURCE / "build/demo-vllm.json")
    given = options.parse_args()
    lengths = [512, 1024] if given.quick else [int(word) for word in given.lengths.split()]
    given.dir.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="demo-vllm-", dir=given.dir))
    demo = Demo(lengths, 1 if given.quick else given.runs, work)
    try:
        demo.reference()
        demo.move()
        demo.tiers()
        demo.report(given.out)
        return 0
    except (Failed, urllib.error.URLError, OSError) as error:
        print(f"demo-vllm: FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        for process in started:
            process.kill()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
