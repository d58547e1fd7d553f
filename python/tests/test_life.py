# SPDX-License-Identifier: Apache-2.0
"""Threads, fork, the end of the interpreter, wrong arguments: nothing of it crashes."""
import gc
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, List

import cairnkv
import pytest
from cairnkv import Batch, Desc, Group, Item, Part, Planes, Space, Store
from conftest import Server, open_here

Blocks = Callable[..., List[bytes]]
HEAD = """
import gc, os, signal, sys, threading, time
import cairnkv
from cairnkv import Item, Store
place = sys.argv[1]
def open_store(place=place):
    return Store(place) if place.startswith("unix:") else Store(place, create=True, memory_bytes=16 << 20,
                                                                 flash=[(place + ".flash", 64 << 20)])
def stop(pid):
    os.kill(int(pid), signal.SIGSTOP)
    for task in os.listdir(f"/proc/{pid}/task"):
        while open(f"/proc/{pid}/task/{task}/stat").read().rpartition(")")[2].split()[0] not in "Tt":
            time.sleep(0.001)
def space_of(store):
    return store.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16)
"""


def run(script: str, *words: str) -> str:
    done = subprocess.run([sys.executable, "-B", "-X", "faulthandler", "-c", HEAD + script, *words],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done.stdout


def test_life__eight_threads_share_a_store(store: Store, space: Space) -> None:
    keys = space.derive().tokens(range(16 * 64))
    data = [bytes([index]) * (1000 + index) for index in range(64)]
    failures: List[BaseException] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        queue = store.queue(4)
        try:
            for _ in range(60):
                index = dice.randrange(64)
                what = dice.randrange(5)
                if what == 0:
                    assert store.put(space, [Item(keys[index], data[index])]) == 1
                elif what == 1:
                    assert store.read(space, keys[index]) in (None, data[index])
                elif what == 2:
                    lease = store.lease(space, keys[index])
                    assert lease is None or lease.view == data[index]
                elif what == 3:
                    with store.match(space, keys) as match:
                        assert match.tokens % 16 == 0
                else:
                    pending = queue.put(space, [Item(keys[index], data[index])])
                    assert queue.wait(20.0) == [pending] and pending.result == 1
        except BaseException as error:
            failures.append(error)
        finally:
            queue.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_life__close_waits_when_others_call(here: Store, space: Space) -> None:
    key = bytes(32)
    began = threading.Barrier(5)
    ends: List[str] = []

    def work() -> None:
        began.wait()
        try:
            while True:
                here.put(space, [Item(key, b"x" * 1000)])
                here.read(space, key)
                here.stat()
        except cairnkv.Closed:
            ends.append("closed")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    began.wait()
    here.close()
    for thread in threads:
        thread.join()
    assert ends == ["closed"] * 4 and here.closed
    here.close()
    for call in (here.stat, here.sync, lambda: here.match(space, [key]), lambda: space.text, space.derive):
        with pytest.raises(cairnkv.Closed):
            call()


def test_life__close_waits_for_a_call_that_waits(server: Server) -> None:
    store = Store(server.place)
    space = store.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16)
    store.put(space, [Item(bytes(32), b"1234")])
    item = Item(bytes(32), bytearray(4))
    server.stop()
    try:
        getting = threading.Thread(target=store.get, args=(space, [item]))
        getting.start()
        while not store._handle.active:
            time.sleep(0.001)
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive() and getting.is_alive()
    finally:
        server.go_on()
    getting.join(20)
    closing.join(20)
    assert store.closed and item.ok and item.bufs[0] == bytearray(b"1234")


def test_life__store_is_closed_when_forgotten(folder: Path) -> None:
    store = open_here(folder)
    space = store.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16)
    store.put(space, [Item(bytes(32), b"1234")])
    lease = store.lease(space, bytes(32))
    del store, space
    with pytest.raises(cairnkv.Owned):
        open_here(folder)
    assert lease is not None and bytes(lease.view) == b"1234"
    del lease
    gc.collect()
    with open_here(folder) as again:
        assert again.read(again.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16),
                          bytes(32)) == b"1234"


def test_life__nothing_is_lost_when_signals_raise(folder: Path) -> None:
    """Exceptions out of handlers, at any place: the store closes afterwards, and so holds nothing that was lost."""
    script = """
store = open_store()
space = space_of(store)
queue = store.queue(8)
class Alarm(Exception):
    pass
sys.unraisablehook = lambda *_: None  # they are raised in finalizers too
def ring(*_):
    raise Alarm
signal.signal(signal.SIGALRM, ring)
rung = 0
until = time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + rung % 7 * 0.0003)
        for _ in range(100):  # an alarm in a finalizer is not seen here
            store.put(space, [Item(bytes(32), b"1234")])
            with store.match(space, [bytes(32)]):
                lease = store.lease(space, bytes(32))
            queue.put(space, [Item(bytes(32), b"1234")])
            queue.get(space, [Item(bytes(32), bytearray(4))])
            queue.wait()
            lease.release()
    except Alarm:
        rung += 1
    except cairnkv.Busy:  # what an alarm kept from being waited for
        signal.setitimer(signal.ITIMER_REAL, 0)
        while queue.in_flight:
            queue.wait()
signal.setitimer(signal.ITIMER_REAL, 0)
lease = None
while queue.in_flight:
    queue.wait()
store.close()
print(rung > 20)
"""
    assert run(script, str(folder / "store")) == "True\n"


def test_life__close_refuses_when_within_a_call(here: Store, space: Space) -> None:
    """As by a signal's handler; a fence is the one place where it can be shown without chance."""
    seen: List[BaseException] = []

    def fence() -> None:
        try:
            here.close()
        except cairnkv.CairnError as error:
            seen.append(error)

    with here.region(bytearray(10), fence=fence) as region:
        assert here.put(space, [Item(bytes(32), (region, 0, 10))]) == 1
    assert isinstance(seen[0], cairnkv.Busy) and "within" in str(seen[0])


def test_life__parts_stay_when_the_interpreter_ends(folder: Path) -> None:
    place = str(folder / "store")
    script = """
store = open_store()
space = space_of(store)
assert store.put(space, [Item(bytes(32), b"kept")]) == 1
lease = store.lease(space, bytes(32))
match = store.match(space, [bytes(32)])
queue = store.queue()
"""
    run(script, place)
    assert run("store = open_store(); print(store.read(space_of(store), bytes(32)))", place) == "b'kept'\n"


def test_life__batches_in_flight_end_with_the_interpreter(server: Server) -> None:
    script = """
store = open_store()
space = space_of(store)
store.put(space, [Item(bytes(32), b"1234")])
queue = store.queue()
stop(sys.argv[2])
for _ in range(10):
    queue.get(space, [Item(bytes(32), bytearray(4))])
os.system(f"(sleep 0.3; kill -CONT {sys.argv[2]}) >/dev/null 2>&1 &")
"""
    run(script, server.place, str(server.process.pid))


def test_life__daemon_threads_do_not_hold_up_the_end(server: Server) -> None:
    script = """
import cairnkv._handle
cairnkv._handle.EXIT_WAIT_S = 0.1
store = open_store()
space = space_of(store)
store.put(space, [Item(bytes(32), b"1234")])
stop(sys.argv[2])
threading.Thread(target=lambda: store.get(space, [Item(bytes(32), bytearray(4))]), daemon=True).start()
while not store._handle.active:
    time.sleep(0.001)
print("end")
"""
    assert run(script, server.place, str(server.process.pid)) == "end\n"
    server.go_on()


# gcc 12's sanitizer does not let go of its allocator's locks in a child, if another thread held them at the fork.
@pytest.mark.skipif("CAIRN_PRELOAD" in os.environ and os.environ["CAIRN_PRELOAD"] != "", reason="the address sanitizer")
def test_life__children_are_told_when_forked(folder: Path) -> None:
    script = """
store = open_store()
space = space_of(store)
store.put(space, [Item(bytes(32), b"1234")])
lease, match, queue = store.lease(space, bytes(32)), store.match(space, [bytes(32)]), store.queue()
region = store.region(bytearray(10))
session_of = lambda: store.resume("none")
pid = os.fork()
if pid == 0:
    for call in (store.stat, store.close, match.ticket, queue.fileno, queue.wait, lease.verify, space.derive,
                 session_of, lambda: lease.view, lambda: store.get(space, []), lambda: queue.get(space, []),
                 lambda: space.text):
        try:
            call()
        except cairnkv.Forked as error:
            assert "fork" in error.text
        else:
            assert call in (store.close,), call
    for one in (match, lease, region, queue):
        one.close()
    with open_store(place + "2") as own:
        assert own.put(space_of(own), [Item(bytes(32), b"own")]) == 1
    del lease, match, queue, region
    gc.collect()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert lease.view == b"1234" and match.tokens == 16
print(store.read(space, bytes(32)))
"""
    assert run(script, str(folder / "store")) == "b'1234'\n"


def test_life__errors_have_classes(folder: Path, here: Store) -> None:
    with pytest.raises(cairnkv.NotFound) as caught:
        Store(folder / "none")
    assert caught.value.status is cairnkv.Status.NOENT and str(folder) in caught.value.text
    with pytest.raises(cairnkv.Owned):
        open_here(folder)
    (folder / "other").mkdir()
    (folder / "other" / "file").write_text("x")
    with pytest.raises(cairnkv.NotAStore):
        Store(folder / "other", create=True)
    with pytest.raises(ValueError, match="io_engine"):
        Store(folder / "none", io_engine="fast")
    with pytest.raises(cairnkv.Invalid, match="kv_dtype"):
        here.space(block_tokens=16)
    unknown = here.space(kv_dtype="bf16", block_tokens=16)
    with pytest.raises(cairnkv.UnknownWeights):
        here.put(unknown, [Item(bytes(32), b"x")])
    with pytest.raises(cairnkv.NotFound, match="cairn serve"):
        Store(f"unix:{folder}/no.sock")


def test_life__store_closes_when_failures_are_kept(here: Store, space: Space) -> None:
    """A caught exception keeps the frames of the call, and all in them."""
    with pytest.raises(cairnkv.CairnError) as match:
        here.join(space, bytes(32))
    with pytest.raises(cairnkv.CairnError) as session:
        here.resume("nobody")
    assert here.lease(space, bytes(32)) is None
    here.close()
    assert match.value.__traceback__ and session.value.__traceback__ and here.closed


WRONG: List[Any] = [None, -1, 1 << 70, 1.5, "text", b"", b"short", object(), [], {}, [None], [b"x"], (1,), ("a", "b"),
                    bytes(31), {1 << 40: []}, [object()], "\0", "\ud800"]
FINE = (TypeError, ValueError, OverflowError, BufferError, AttributeError, LookupError, cairnkv.CairnError)


def test_life__wrong_arguments_raise(here: Store, space: Space, folder: Path) -> None:
    key = bytes(32)
    here.put(space, [Item(key, b"1234")])
    match = here.match(space, [key])
    queue = here.queue()
    derive = space.derive()
    calls: List[Callable[[Any], object]] = [
        lambda x: Store(x), lambda x: Store(folder / "n", memory_bytes=x), lambda x: Store(folder / "n", flash=x),
        lambda x: Store(folder / "n", peers=x), lambda x: Store(folder / "n", tenants=x),
        lambda x: Store(folder / "n", token_file=x), lambda x: here.space(x), lambda x: here.space(tenant=x),
        lambda x: here.space(weights=x), lambda x: here.space(groups=x), lambda x: here.space(parts=x),
        lambda x: here.space(fields=x), lambda x: here.space(layers=x),
        lambda x: Desc(kv_dtype="f16", groups=[Group(x)]).id(), lambda x: Desc(kv_dtype="f16", parts=[Part(x)]).id(),
        lambda x: here.put(x, []), lambda x: here.put(space, x), lambda x: here.put(space, [Item(key, x)]),
        lambda x: here.put(space, [], durability=x), lambda x: here.get(space, [], timeout_ms=x), lambda x: Item(x),
        lambda x: Item(key, parent=x), lambda x: here.put(space, [Item(key, b"x", group=x)]),
        lambda x: here.put(space, [Item(key, b"x", part=x)]),
        lambda x: here.put(space, [Item(key, b"x", engine_hash=x)]), lambda x: here.get(space, [Item(key, [x])]),
        lambda x: here.get(space, [Item(key, (x, 4))]), lambda x: here.get(space, [Item(key, (x, 0, 4))]),
        lambda x: Planes(x), lambda x: Batch(x, Planes([]), [0]), lambda x: Batch([key], x, [0]),
        lambda x: Batch([key], Planes([]), x), lambda x: Batch([key], Planes([]), [x]),
        lambda x: Batch([key], Planes([]), [0], parents=x), lambda x: Batch([key], Planes([]), [0], engine_hashes=x),
        lambda x: here.lease(space, x), lambda x: here.lease(space, key, group=x), lambda x: here.read(space, x),
        lambda x: here.match(space, x), lambda x: here.match(space, [key], parts=x), lambda x: here.match(x, [key]),
        lambda x: here.join(space, x), lambda x: here.hint(space, x, cairnkv.Hint.PAUSE),
        lambda x: here.hint(space, [key], x),
        lambda x: here.region(x), lambda x: here.region(fd=x, length=10), lambda x: here.queue(x),
        lambda x: here.save(space, x, [key]), lambda x: here.save(space, "s", x),
        lambda x: here.save(space, "s", [key], state=x), lambda x: here.save(space, "s", [key], tails=x),
        lambda x: here.resume(x), lambda x: here.resume("s", tenant=x), lambda x: here.sessions(x),
        lambda x: here.session_pin(x), lambda x: here.session_forget(x), lambda x: here.session_close(x),
        lambda x: here.parts(x), lambda x: here.events(x), lambda x: here.events(0, x), lambda x: here.explain(x, key),
        lambda x: here.explain(space, x), lambda x: here.explain(space, key, x), lambda x: here.drop(space, x),
        lambda x: here.drop_space(x), lambda x: here.drop_tenant(x), lambda x: here.limits(x),
        lambda x: match.agree(x, 16), lambda x: match.agree(1, x), lambda x: queue.put(space, x),
        lambda x: queue.get(x, []), lambda x: queue.wait(x), lambda x: queue.wait(0, x), lambda x: queue.cancel(x),
        lambda x: derive.tokens(x), lambda x: derive.tokens([1], x), lambda x: derive.hash(x),
        lambda x: derive.hashes(x), lambda x: derive.block(x), lambda x: space.derive(x),
        lambda x: cairnkv.weights_digest(x), lambda x: cairnkv.check(x), lambda x: cairnkv.explain_desc(x, Desc()),
        lambda x: cairnkv.token_new(x), lambda x: cairnkv.token_list(x), lambda x: cairnkv.token_revoke(folder, x),
        lambda x: cairnkv.program(x),
    ]
    raised = 0
    for call in calls:
        for value in WRONG:
            try:
                call(value)
            except FINE:
                raised += 1
    assert raised > len(calls) * len(WRONG) // 2
    for null in (0, -4096):
        with pytest.raises((cairnkv.Invalid, OverflowError)):
            here.put(space, [Item(key, (null, 10))])
    with pytest.raises(cairnkv.Invalid):
        here.put(space, [Item(key, b"1")] * 2)
    other_folder = folder / "more"
    other_folder.mkdir()
    with open_here(other_folder) as other, pytest.raises(cairnkv.Invalid, match="another store"):
        other.put(space, [])
    with open_here(other_folder) as other, other.region(bytearray(4)) as region:
        with pytest.raises(cairnkv.Invalid, match="another store"):
            here.get(space, [Item(key, (region, 0, 4))])
    assert here.read(space, key) == b"1234"


def test_life__weights_are_remembered_when_unchanged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_CACHE", str(folder / "cache"))
    monkeypatch.setattr("cairnkv._weights._SETTLE_S", -10)
    files = [folder / "b.safetensors", folder / "a.safetensors"]
    for path in files:
        path.write_bytes(os.urandom(3 << 20))
    seen: List[Any] = []
    digest = cairnkv.weights_digest(files, lambda done, whole: seen.append((done, whole)))
    assert len(digest) == 32 and seen[-1] == (6 << 20, 6 << 20)
    count = len(seen)
    assert cairnkv.weights_digest(files[::-1], lambda *now: seen.append(now)) == digest and len(seen) == count
    assert cairnkv.weights_digest(files, cache=False) == digest
    with open(files[0], "r+b") as file:
        file.write(b"other")
    assert cairnkv.weights_digest(files) != digest
    with pytest.raises(cairnkv.Canceled):
        cairnkv.weights_digest(files, lambda *_: True, cache=False)
    with pytest.raises(ZeroDivisionError):
        cairnkv.weights_digest(files, lambda *_: 1 // 0, cache=False)
    with pytest.raises(cairnkv.NotFound):
        cairnkv.weights_digest([folder / "none"])


def test_life__tokens_are_made_and_revoked(folder: Path, here: Store) -> None:
    text = cairnkv.token_new(folder / "store", tenant="ann", ttl_s=60)
    listed = cairnkv.token_list(folder / "store")
    assert len(text) > 40 and [one.tenant for one in listed] == ["ann"]
    cairnkv.token_revoke(folder / "store", listed[0].id)
    assert cairnkv.token_list(folder / "store") == []


def test_life__private_cairnd_starts_when_shared(folder: Path) -> None:
    """The library finds the cairnd of its package by itself."""
    with open_here(folder, shared=True) as store:
        space = store.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16)
        assert store.put(space, [Item(bytes(32), b"x")]) == 1
        assert store.clients()[0].pid == os.getpid()
        with open_here(folder, shared=True) as other:
            assert other.read(other.space(space.desc), bytes(32)) == b"x"


def test_life__cairnd_is_found_when_the_library_has_no_directory(folder: Path) -> None:
    """An empty part of LD_LIBRARY_PATH is the current directory; vLLM's processes have one."""
    code = "import sys, cairnkv; cairnkv.Store(sys.argv[1], create=True, shared=True, memory_bytes=32 << 20).close()"
    subprocess.run([sys.executable, "-c", code, folder / "store"], cwd=Path(cairnkv.__file__).parent / "lib",
                   env={**os.environ, "LD_LIBRARY_PATH": ":", "PATH": "/usr/bin:/bin"}, check=True, timeout=120)
