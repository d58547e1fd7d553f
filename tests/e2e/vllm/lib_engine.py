# SPDX-License-Identifier: Apache-2.0
"""For tests that start engines and cairnds: processes that end with the test, whatever happens, by their own ids."""
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CAIRN = os.environ["CAIRN"]
PYTHON = os.environ["VLLM_PYTHON"]
MODEL = pathlib.Path(os.environ["VLLM_MODEL"])
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
               "VLLM_CPU_OMP_THREADS_BIND": "1", "VLLM_LOGGING_LEVEL": "DEBUG", "DO_NOT_TRACK": "1"}


class Failed(Exception):
    pass


def check(what: str, well: bool) -> None:
    if not well:
        raise Failed(what)


class Process:
    """In a session of its own, so that what it starts ends with it."""

    def __init__(self, name: str, command: list, log: pathlib.Path, **how: object) -> None:
        self.name, self.log = name, log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **how)

    def tail(self, lines: int = 30) -> str:
        noise = ("gpu_model_runner.py", "shm_broadcast.py", "scheduler.py:", "metrics.py")  # what vLLM says at each step
        said = [line for line in self.log.read_text(errors="replace").split("\n") if not any(n in line for n in noise)]
        return "\n".join(said[-lines:])

    def kill(self, sign: int = signal.SIGKILL) -> None:
        try:
            os.killpg(self.process.pid, sign)
        except ProcessLookupError:
            pass
        if sign in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(timeout=60)
            if sign == signal.SIGTERM:  # whatever of it has not ended
                self.kill()


class Cairnd(Process):
    def __init__(self, directory: pathlib.Path, log: pathlib.Path, *options: str) -> None:
        start = log.stat().st_size if log.exists() else 0
        super().__init__("cairnd", [CAIRN, "serve", "--dir", str(directory), *options], log)
        until = time.monotonic() + 60
        while b"ready" not in log.read_bytes()[start:]:
            check(f"cairnd becomes ready: {self.tail()}", self.process.poll() is None and time.monotonic() < until)
            time.sleep(0.05)


class Engine(Process):
    def __init__(self, name: str, model: pathlib.Path, transfer: object, log: pathlib.Path, **options: object) -> None:
        ours, theirs = os.pipe()
        environment = {**os.environ, **ENVIRONMENT}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ["CAIRNKV_PATH"], str(HERE),
                                                                  os.environ.get("PYTHONPATH", "")]))

        def as_third() -> None:
            os.dup2(theirs, 3)
        command = [PYTHON, str(HERE / "engine.py"), str(model), json.dumps(transfer) if transfer else ""]
        command += [f"{option}={json.dumps(value)}" for option, value in options.items()]
        began = time.monotonic()
        super().__init__(name, command, log, stdin=subprocess.PIPE, env=environment, preexec_fn=as_third,
                         close_fds=False)
        os.close(theirs)
        self.answers = os.fdopen(ours)
        self.read()
        print(f"   engine {name} is up after {time.monotonic() - began:.0f} s", flush=True)

    def read(self) -> dict:
        line = self.answers.readline()
        check(f"engine {self.name} answers: {self.tail(60)}", bool(line))
        return json.loads(line)

    def has_answered(self) -> bool:
        return bool(select.select([self.answers], [], [], 0)[0])

    def send(self, **what: object) -> None:
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, **what: object) -> dict:
        self.send(**what)
        return self.read()

    def run(self, prompt: list, max_tokens: int, **cairn: object) -> dict:
        return self.ask(prompt=prompt, max_tokens=max_tokens, params={"cairn": cairn} if cairn else None)

    def fresh(self, prompt: list, max_tokens: int, **cairn: object) -> dict:
        self.empty()
        return self.run(prompt, max_tokens, **cairn)

    def metric(self, name: str) -> float:
        """What was counted since the last step comes with the next one, and is read by the one after it."""
        for _ in range(2):
            self.run([1, 2], 1)
        return self.ask(metrics=True).get(f"vllm:cairn_{name}", 0)

    def empty(self) -> None:
        """vLLM's own cache. It frees blocks that wait for saves a moment later."""
        until = time.monotonic() + 60
        while not self.ask(reset=True)["ok"]:
            check("vLLM's own cache can be emptied", time.monotonic() < until)
            time.sleep(0.1)


def cairn(*arguments: object, status: int = 0) -> str:
    done = subprocess.run([CAIRN, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    check(f"cairn {arguments}: status {done.returncode}, {done.stderr}", done.returncode == status)
    return done.stdout


def eventually(what: str, condition: object, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        check(what, time.monotonic() < until)
        time.sleep(0.1)


def main(test: object, processes: list) -> None:
    """Runs a test; whatever happens, ends what it started, and shows the ends of their logs where it failed."""
    try:
        test()
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        for process in processes:
            print(f"---- {process.name}\n{process.tail()}", file=sys.stderr)
        sys.exit(1)
    finally:
        for process in processes:
            process.kill()
