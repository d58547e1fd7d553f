#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in copies of the tree and shows which test finds each. See planted-faults.sh, tests/faults/README.md.

Each worker has its own copy and its own build directory, so that a fault costs one compilation and one link. The
working tree is only read. A hang counts as found: a test may take five times what it takes without a fault.
"""
import argparse
import hashlib
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FAULTS = os.path.join("tests", "faults")
SEEDS = "1-200"
CLEAN_LIMIT_S = 600
FAULT_LIMIT_MIN_S = 20
LEFT_OUT = re.compile(r"^(\.git|build.*|shared|\.cache)$")


class Trouble(Exception):
    """The run cannot go on: a fault that no longer applies, a build that fails, tests that fail without a fault."""


# ---- the list ---------------------------------------------------------------------------------------------------------


class Fault:
    def __init__(self, name, what, where):
        self.name, self.what, self.where = name, what, where
        self.tests = []
        self.edits = []  # (path, old text, new text), whole lines


def faults_parse(path):
    faults, hunk = [], None
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().split("\n")

    def bad(what):
        raise Trouble(f"{path}:{number}: {what}")

    for number, line in enumerate(lines, 1):
        if hunk is not None and line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                hunk[1].append(line[1:])
            if line[0] != "-":
                hunk[2].append(line[1:])
            continue
        hunk = None
        if not line or line.startswith("#"):
            continue
        if line.startswith("fault "):
            name, colon, what = line[6:].partition(": ")
            if not colon or not re.fullmatch(r"[a-z0-9-]+", name):
                bad("write `fault NAME: what goes wrong`")
            faults.append(Fault(name, what, f"{path}:{number}"))
        elif line.startswith("tests: ") and faults:
            faults[-1].tests = line[7:].split()
        elif line.startswith("@ ") and faults:
            hunk = (line[2:], [], [])
            faults[-1].edits.append(hunk)
        else:
            bad(f"what is this: {line}")
    for fault in faults:
        if not fault.tests or not fault.edits:
            raise Trouble(f"{fault.where}: fault {fault.name} has no tests or no edit")
        fault.edits = [(p, "\n".join(old) + "\n", "\n".join(new) + "\n") for p, old, new in fault.edits]
    return faults


def faults_load():
    faults, seen = [], {}
    for name in sorted(os.listdir(os.path.join(ROOT, FAULTS))):
        if name.endswith(".txt"):
            faults += faults_parse(os.path.join(FAULTS, name))
    for fault in faults:
        if fault.name in seen:
            raise Trouble(f"{fault.where}: fault {fault.name} is there already: {seen[fault.name]}")
        seen[fault.name] = fault.where
    return faults


def fault_apply(fault, tree):
    """The changed texts, by path. Every edit must match exactly one place."""
    texts = {}
    for path, old, new in fault.edits:
        if path not in texts:
            try:
                with open(os.path.join(tree, path), encoding="utf-8") as file:
                    texts[path] = "\n" + file.read()
            except OSError as error:
                raise Trouble(f"fault {fault.name} no longer applies: {path}: {error.strerror}") from None
        count = texts[path].count("\n" + old)
        if count != 1:
            raise Trouble(f"fault {fault.name} no longer applies: {path}, {count} places have this text "
                          f"({fault.where}):\n{old}")
        texts[path] = texts[path].replace("\n" + old, "\n" + new)
    return {path: text[1:] for path, text in texts.items()}


# ---- tests ------------------------------------------------------------------------------------------------------------


def test_target(test):
    kind, colon, rest = test.partition(":")
    if test.startswith("test_"):
        return test
    if kind == "sim":
        return "cairn-sim"
    if kind == "fuzz" and colon:
        return f"fuzz_{rest}"
    if kind in ("torture", "e2e") and colon:
        return None  # a script: it says itself what it needs
    if kind == "python" and colon:
        return "cairnkv"
    raise Trouble(f"test {test}: write test_NAME, sim, sim:A-B, fuzz:NAME, torture:NAME, e2e:NAME or python:NAME")


def python_find():
    """The Python of tools/setup-python.sh; "" where it is not there."""
    found = subprocess.run([os.path.join(ROOT, "tools", "setup-python.sh"), "--find"], capture_output=True, check=False)
    return found.stdout.decode().strip()


def test_targets(test, tree):
    """What to build for it."""
    target = test_target(test)
    if target:
        targets = [target]
        source = os.path.join(tree, "tests", "unit", target + ".c")
        if os.path.exists(source):
            with open(source, encoding="utf-8") as file:
                if "/cairnd\"" in file.read():
                    targets.append("cairnd")
        return targets
    kind, _, name = test.partition(":")
    targets = ["cairn-cli"]
    try:
        with open(os.path.join(tree, "tests", kind, name + ".sh"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        if os.path.exists(os.path.join(tree, "tests", kind, name + ".c")):
            return [name]
        raise Trouble(f"test {test}: there is no tests/{kind}/{name}.sh") from None
    for source in sorted(os.listdir(os.path.join(tree, "tests", "torture"))):
        stem = source[:-2]
        if source.endswith(".c") and stem in text:
            targets.append(stem)
    if "cairn-sim" in text:
        targets.append("cairn-sim")
    if re.search("cairnd|lib_serve|shared", text):
        targets.append("cairnd")
    return targets


def test_command(test, tree, build):
    kind, _, rest = test.partition(":")
    if test.startswith("test_"):
        return [os.path.join(build, "tests", test)]
    if kind == "sim":
        return [os.path.join(build, "cairn-sim"), "--seeds", rest or SEEDS]
    if kind == "fuzz":
        return [os.path.join(build, f"fuzz_{rest}")]
    if kind == "python":
        return ["bash", os.path.join(tree, "tools", "test-python.sh"), python_find(), os.path.join(build, "python"),
                os.path.join(tree, "python", "tests", rest + ".py")]
    script = os.path.join(tree, "tests", kind, rest + ".sh")
    return ["bash", script] if os.path.exists(script) else [os.path.join(build, rest)]


# ---- copies and builds ------------------------------------------------------------------------------------------------


def tree_sync(to):
    """Makes `to` a copy of the working tree; files that are the same already are left alone."""
    want = set()
    for folder, folders, files in os.walk(ROOT):
        if folder == ROOT:
            folders[:] = [f for f in folders if not LEFT_OUT.match(f)]
        for name in files:
            source = os.path.join(folder, name)
            path = os.path.relpath(source, ROOT)
            target = os.path.join(to, path)
            if not os.path.isfile(source):
                continue
            want.add(path)
            with open(source, "rb") as file:
                data = file.read()
            if os.path.isfile(target):
                with open(target, "rb") as file:
                    if file.read() == data:
                        continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)
            shutil.copymode(source, target)
    for folder, _, files in os.walk(to):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, to) not in want:
                os.unlink(path)


class Worker:
    def __init__(self, number, run):
        self.run = run
        self.tree = os.path.join(run.work, str(number), "tree")
        self.build_dir = os.path.join(run.work, str(number), "build")
        self.tmp = os.path.join(run.work, str(number), "tmp")
        os.makedirs(self.tree, exist_ok=True)
        os.makedirs(self.tmp, exist_ok=True)
        self.child = None

    def call(self, command, limit_s, env=None):
        """Runs a command; returns (status, output); status None: it took too long."""
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     cwd=self.tmp, env=env, start_new_session=True)
            self.child = child
            try:
                status = child.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                status = None
            try:
                os.killpg(child.pid, signal.SIGKILL)  # and what it left behind
            except ProcessLookupError:
                pass
            child.wait()
            self.child = None
            output.seek(0, os.SEEK_END)
            output.seek(max(0, output.tell() - 20000))
            return status, output.read().decode("utf-8", "replace")

    def configure(self):
        tree_sync(self.tree)
        kinds = "unit;sim;torture;e2e;fuzz"
        command = ["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build_dir, "-DCMAKE_BUILD_TYPE=None",
                   "-DCMAKE_C_FLAGS=-O1 -g1", "-DCMAKE_CXX_FLAGS=-O1", "-DCAIRN_WERROR=OFF", "-DCAIRN_LLAMA=OFF",
                   f"-DCAIRN_TESTS={kinds}"]
        status, output = self.call(command, 120)
        if status:
            raise Trouble(f"cmake fails:\n{output}")

    def build(self, targets, what):
        # Sources changed and changed back: ninja looks at times, and they only grow.
        status, output = self.call(["ninja", "-C", self.build_dir, "-j", str(self.run.build_jobs), *targets], 600)
        if status != 0:
            raise Trouble(f"{what} does not build:\n{output[-4000:]}")

    def test(self, test, limit_s):
        """How it ended: "" good, else why it failed."""
        env = dict(os.environ, CAIRN=os.path.join(self.build_dir, "cairn"), CAIRN_BUILD=self.build_dir,
                   CAIRN_SOURCE=self.tree, TMPDIR=self.tmp)
        status, output = self.call(test_command(test, self.tree, self.build_dir), limit_s, env)
        for name in os.listdir(self.tmp):
            shutil.rmtree(os.path.join(self.tmp, name), ignore_errors=True)
        if status is None:
            return "hangs", output
        if status == 77:
            return "", output  # skipped: it finds nothing
        if status < 0:
            return f"signal {-status}", output
        return (f"status {status}", output) if status else ("", output)

    def plant(self, texts):
        before = {}
        for path, text in texts.items():
            with open(os.path.join(self.tree, path), encoding="utf-8") as file:
                before[path] = file.read()
            with open(os.path.join(self.tree, path), "w", encoding="utf-8") as file:
                file.write(text)
        return before


def reason_of(output):
    """The line of a test's output that says what was wrong."""
    for pattern in (r"^\[  FAILED  \] (\w+)", r"(seed \d+ failed at .*)", r"(check failed.*)", r"^(.*: error: .*)$",
                    r"^(.*(?:FAIL|fail|not ok).*)$"):
        found = re.search(pattern, output, re.M)
        if found:
            return found.group(1).strip()[:110]
    lines = [line for line in output.strip().split("\n") if line.strip()]
    return lines[-1].strip()[:110] if lines else ""


# ---- the run ----------------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, options, faults, work):
        self.options, self.faults, self.work = options, faults, work
        self.jobs = min(options.jobs, len(faults))
        self.build_jobs = 1 if self.jobs > 1 else options.jobs
        self.tests = sorted({test for fault in faults for test in fault.tests})
        self.clean_s = {}
        self.clean = queue.Queue()
        self.todo = queue.Queue()
        self.lock = threading.Lock()
        self.built = threading.Barrier(self.jobs)
        self.workers = []
        self.error = None
        self.missed = []
        self.untried = []
        self.start = time.monotonic()
        self.width = max(len(fault.name) for fault in faults)

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def clean_tests(self, worker):
        while not self.error:
            try:
                test = self.clean.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            why, output = worker.test(test, CLEAN_LIMIT_S)
            self.clean_s[test] = time.monotonic() - start
            if why and not self.error:
                raise Trouble(f"the tests fail without a fault: {test}: {why}\n{output[-3000:]}")
            if self.options.verbose:
                self.say(f"without a fault: {test} passes, {self.clean_s[test]:.1f} s")

    def fault_tests(self, worker, fault):
        texts = fault_apply(fault, worker.tree)
        before = worker.plant(texts)
        start = time.monotonic()
        finders = []
        try:
            for test in fault.tests:
                worker.build(test_targets(test, worker.tree), f"fault {fault.name}")
                limit_s = max(FAULT_LIMIT_MIN_S, 5 * self.clean_s[test])
                why, output = worker.test(test, limit_s)
                if why:
                    finders.append((test, why, reason_of(output)))
                    if not self.options.all_tests:
                        break
        finally:
            worker.plant(before)
        seconds = time.monotonic() - start
        if self.error:
            return
        if not finders:
            self.missed.append(fault.name)
            self.say(f"{fault.name:{self.width}}  NOT FOUND  {seconds:5.1f} s  by {' '.join(fault.tests)}")
        for test, why, reason in finders:
            self.say(f"{fault.name:{self.width}}  {test:20}  {seconds:5.1f} s  {why}: {reason}")

    def work_through(self, number):
        try:
            worker = Worker(number, self)
            self.workers.append(worker)
            worker.configure()
            worker.build(sorted({target for test in self.tests for target in test_targets(test, worker.tree)}),
                         "the tree without a fault")
            self.clean_tests(worker)
            self.built.wait()
            while not self.error:
                try:
                    fault = self.todo.get_nowait()
                except queue.Empty:
                    return
                if self.options.minutes and time.monotonic() - self.start > 60 * self.options.minutes:
                    self.untried.append(fault.name)
                    continue
                self.fault_tests(worker, fault)
        except threading.BrokenBarrierError:
            pass
        except Exception as error:  # told once, by main
            with self.lock:
                self.error = self.error or error
            self.built.abort()

    def stop(self, number, _frame):
        self.error = self.error or Trouble(f"ended by signal {number}")
        self.built.abort()
        for worker in self.workers:
            child = worker.child
            if child:
                os.killpg(child.pid, signal.SIGKILL)

    def main(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)
        for test in self.tests:
            test_target(test)
        for fault in self.faults:  # before anything is built
            fault_apply(fault, ROOT)
        for test in sorted(self.tests, key=lambda t: not t.startswith(("sim", "torture"))):
            self.clean.put(test)
        # By the digest of their names, so that a run that is cut short has some of everything.
        for fault in sorted(self.faults, key=lambda fault: hashlib.sha256(fault.name.encode()).digest()):
            self.todo.put(fault)
        start = time.monotonic()
        threads = [threading.Thread(target=self.work_through, args=(number,)) for number in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error:
            raise self.error
        tried = len(self.faults) - len(self.untried)
        if self.untried:
            self.say(f"not tried for want of time: {len(self.untried)} of {len(self.faults)}")
        self.say(f"{tried - len(self.missed)} of {tried} faults are found, {time.monotonic() - start:.0f} s")
        return 1 if self.missed else 0


def main():
    parser = argparse.ArgumentParser(prog="planted-faults.sh", description="Shows that the tests find planted faults.")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--only", action="append", metavar="NAME", help="this fault (again for more)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="workers; each has its own build")
    parser.add_argument("--work", metavar="DIR", help="keep copies and builds there, for the next run")
    parser.add_argument("--all-tests", action="store_true", help="go on after the first test that fails")
    parser.add_argument("--minutes", type=float, help="begin no more faults after so long; says how many were left")
    parser.add_argument("--verbose", action="store_true", help="also say how long each test takes without a fault")
    options = parser.parse_args()
    options.jobs = max(1, options.jobs)
    try:
        faults = faults_load()
        if options.only:
            unknown = set(options.only) - {fault.name for fault in faults}
            if unknown:
                raise Trouble(f"there is no fault {' '.join(sorted(unknown))}: see --list")
            faults = [fault for fault in faults if fault.name in options.only]
        if options.list:
            for fault in faults:
                print(f"{fault.name}: {fault.what}\n    by {' '.join(fault.tests)}")
            return 0
        if not python_find():
            least = [fault for fault in faults if not all(test.startswith("python:") for test in fault.tests)]
            if len(least) < len(faults):
                print(f"planted-faults: {len(faults) - len(least)} left out: no Python (tools/setup-python.sh)")
            faults = least
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if options.work:
            os.makedirs(options.work, exist_ok=True)
            return Run(options, faults, os.path.abspath(options.work)).main()
        with tempfile.TemporaryDirectory(prefix="cairn-faults-") as work:
            return Run(options, faults, work).main()
    except Trouble as trouble:
        print(f"planted-faults: {trouble}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
