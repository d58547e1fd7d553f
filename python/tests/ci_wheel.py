# SPDX-License-Identifier: Apache-2.0
"""`pip install .` in a fresh environment: the wheel carries all that is needed, and finds it."""
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Iterator

import pytest

TREE = Path(__file__).resolve().parents[2]


# The package that this test itself may have is not meant.
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_PRELOAD")}


def run(*words: str, **options: object) -> str:
    done = subprocess.run(words, capture_output=True, text=True, env=CLEAN, timeout=1200, **options)  # type: ignore
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git knows, as from a fresh checkout, with the tools of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    listed = run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=TREE).split("\0")
    for name in filter(None, listed):
        if (TREE / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / name, tree / name)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w",
        str(folder), str(tree))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh one that has the wheel, and cffi as it is here."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", str(folder))
    (site,) = folder.glob("lib/python3*/site-packages")
    run(str(folder / "bin/python"), "-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check",
        str(wheel))
    import cffi
    import pycparser
    here = Path(cffi.__file__).parents[1]
    for path in [*here.glob("cffi*"), *here.glob("_cffi_backend*"), Path(pycparser.__file__).parent]:
        if path.is_dir():
            shutil.copytree(path, site / path.name)
        else:
            shutil.copy(path, site / path.name)
    yield folder


def test_wheel__holds_what_is_needed(wheel: Path) -> None:
    assert re.fullmatch(r"cairnkv-[0-9.]+-cp39-abi3-linux_\w+\.whl", wheel.name)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"cairnkv/__init__.py", "cairnkv/py.typed", "cairnkv/_cairn.pyi", "cairnkv/_cairn.abi3.so",
            "cairnkv/bin/cairn", "cairnkv/bin/cairnd", "cairnkv/lib/libcairn.so.0"} <= names
    assert not [name for name in names if "/tests/" in name or name.endswith((".a", ".h", ".pc", ".service"))]
    assert wheel.stat().st_size < 20 << 20


def test_wheel__works_when_installed(environment: Path, tmp_path: Path) -> None:
    python = str(environment / "bin/python")
    script = """
import os, sys, cairnkv
place = sys.argv[1]
flash = [(place + ".flash", 64 << 20)]
with cairnkv.Store(place, create=True, shared=True, memory_bytes=16 << 20, flash=flash) as store:
    space = store.space(kv_dtype="bf16", block_tokens=16, weights=bytes(range(32)))
    assert store.put(space, [cairnkv.Item(bytes(32), b"bytes")]) == 1
    assert store.read(space, bytes(32)) == b"bytes" and store.clients()
    print(cairnkv.__file__)
"""
    assert str(environment) in run(python, "-I", "-c", script, str(tmp_path / "store"))


def test_wheel__programs_run_when_installed(environment: Path, tmp_path: Path) -> None:
    version = run(str(environment / "bin/python"), "-I", "-c", "import cairnkv; print(cairnkv.version())").strip()
    for name in ("cairn", "cairnd"):
        assert run(str(environment / "bin" / name), "--version").strip() == f"{name} {version}"
    words = [str(environment / "bin/cairn"), "serve", "--dir", str(tmp_path / "store"), "--memory", "16MiB"]
    process = subprocess.Popen([*words, "--flash", f"{tmp_path}/flash:64MiB"], stderr=subprocess.PIPE, text=True,
                               env=CLEAN)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        assert any("ready" in line for line in lines)
        assert os.readlink(f"/proc/{process.pid}/exe").endswith("cairnkv/bin/cairnd")
        listed = run(str(environment / "bin/cairn"), "ls", f"unix:{tmp_path}/store/cairn.sock")
        assert isinstance(listed, str)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
