# SPDX-License-Identifier: Apache-2.0
"""Stores to test with: of this process, and behind a real cairnd."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator, List

import cairnkv
import pytest

MEMORY = 32 << 20
FLASH = 64 << 20
WEIGHTS = bytes(range(32))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket has a limit."""
    path = Path(tempfile.mkdtemp(prefix="cairnkv."))
    yield path
    shutil.rmtree(path)


class Server:
    """A cairnd of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.place = f"unix:{folder}/store/cairn.sock"
        self.log = folder / "cairnd.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [cairnkv.program("cairnd"), "--dir", str(folder / "store"), "--memory", str(MEMORY),
                 "--flash", f"{folder}/flash:{FLASH}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while b"ready" not in self.log.read_bytes():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """It answers nothing from now on, until go_on(). Each of its threads stops in its own time."""
        self.process.send_signal(signal.SIGSTOP)
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            while (task / "stat").read_text().rpartition(")")[2].split()[0] not in "Tt":
                time.sleep(0.001)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0, self.log.read_text()


def open_here(folder: Path, **options: object) -> cairnkv.Store:
    given = {"create": True, "memory_bytes": MEMORY, "flash": [(folder / "flash", FLASH)], **options}
    return cairnkv.Store(f"dir:{folder}/store", **given)  # type: ignore[arg-type]


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    one = Server(folder)
    yield one
    one.kill()


@pytest.fixture(params=["dir", "unix"])
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[cairnkv.Store]:
    """A store that is closed by the test's end, and whose close must go well."""
    if request.param == "unix":
        one = Server(folder)
        try:
            opened = cairnkv.Store(one.place)
            yield opened
            opened.close()
            one.end()
        finally:
            one.kill()
        return
    opened = open_here(folder, event_hashes_bytes=1 << 16)
    yield opened
    opened.close()


@pytest.fixture
def here(folder: Path) -> Iterator[cairnkv.Store]:
    opened = open_here(folder)
    yield opened
    opened.close()


@pytest.fixture
def space(request: pytest.FixtureRequest) -> cairnkv.Space:
    """A space of the test's store."""
    name = "store" if "store" in request.fixturenames else "here"
    store: cairnkv.Store = request.getfixturevalue(name)
    return store.space(model="m", weights=WEIGHTS, kv_dtype="bf16", block_tokens=16)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def blocks() -> Callable[..., List[bytes]]:
    def make(count: int, size: int = 10_000) -> List[bytes]:
        return [os.urandom(size) for _ in range(count)]
    return make
