# SPDX-License-Identifier: Apache-2.0
"""The module against the header: nothing is left out, and no number differs."""
import dataclasses
import hashlib
import re
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any, Dict, List, Type

import cairnkv
import pytest
from cairnkv import _desc, _info, _store
from cairnkv._cairn import ffi, lib

TREE = Path(__file__).resolve().parents[2]
HEADER = (TREE / "include/cairn/cairn.h").read_text()
sys.path.insert(0, str(TREE / "python"))
import header  # noqa: E402


def c_fields(struct: str) -> List[str]:
    return [name for name, _ in ffi.typeof(f"struct {struct}").fields]


def test_names__every_function_is_used() -> None:
    declared = header.functions(HEADER)
    assert len(declared) > 60 and all(hasattr(lib, name) for name in declared)
    text = "".join(path.read_text() for path in (TREE / "python/cairnkv").glob("*.py"))
    text += (TREE / "python/batch.h").read_text()
    # Names of numbers are enums here, and the identity of a space that is open comes from cairn_space_get_id.
    unused = {name for name in declared if not re.search(rf"\b{name}\b", text)}
    assert unused <= {"cairn_status_name", "cairn_reason_name", "cairn_alarm_name"}


@pytest.mark.parametrize("enum, prefix", [
    (cairnkv.Tier, "CAIRN_TIER_"), (cairnkv.Durability, "CAIRN_DURABLE_"), (cairnkv.Rule, "CAIRN_RULE_"),
    (cairnkv.Hint, "CAIRN_HINT_"), (cairnkv.Reason, "CAIRN_WHY_"), (cairnkv.EventKind, "CAIRN_EVENT_"),
])
def test_names__enums_are_those_of_the_header(enum: Type[IntEnum], prefix: str) -> None:
    ours = {one.name: int(one) for one in enum if one.name != "OTHER"}
    theirs = {name[len(prefix):]: getattr(lib, name) for name in dir(lib) if name.startswith(prefix)}
    assert ours == theirs


def test_names__statuses_are_those_of_the_header() -> None:
    names = ["OK", "MISS", "DAMAGED", "EXISTED"]
    theirs = {name: getattr(lib, "CAIRN_" + name) for name in names}
    theirs.update({name[8:]: getattr(lib, name) for name in dir(lib) if name.startswith("CAIRN_E_")})
    assert {one.name: int(one) for one in cairnkv.Status} == theirs
    for status in cairnkv.Status:
        assert status.meaning
        if status < 0:
            error = cairnkv._errors.error_of(int(status), "text")
            assert type(error) is not cairnkv.CairnError and error.status is status


STRUCTS: Dict[Type[Any], str] = {
    _info.TierStat: "cairn_tier_stat", _info.DeviceStat: "cairn_device_stat", _info.PeerStat: "cairn_peer_stat",
    _info.Stat: "cairn_stat", _info.SpaceInfo: "cairn_space_info", _info.PartInfo: "cairn_part_info",
    _info.TenantStat: "cairn_tenant_stat", _info.ClientInfo: "cairn_client_info", _info.Present: "cairn_present",
    _info.SessionInfo: "cairn_session_info", _info.TailInfo: "cairn_tail_info", _info.Event: "cairn_event",
    _info.Explanation: "cairn_explanation", _info.TokenInfo: "cairn_token_info", _desc.Desc: "cairn_space_desc",
    _desc.Group: "cairn_group", _desc.Part: "cairn_part", _store.TenantLimits: "cairn_tenant_limits",
}
NO_VALUES = {"size", "reserved", "hash_bytes", "ndevices", "npeers", "ngroups", "nparts", "nfields"}


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_names__fields_are_those_of_the_struct(cls: Type[Any]) -> None:
    ours = {one.name for one in dataclasses.fields(cls)}
    assert ours == set(c_fields(STRUCTS[cls])) - NO_VALUES


def test_names__options_are_those_of_the_struct() -> None:
    import inspect
    ours = set(inspect.signature(cairnkv.Store.__init__).parameters) - {"self", "place", *_store._FLAGS}
    theirs = set(c_fields("cairn_options")) - {"size", "flags", "nflash", "ntenants", "npeers", "write_version"}
    assert ours == theirs
    assert {name[11:].lower() for name in dir(lib) if name.startswith("CAIRN_OPEN_")} == set(_store._FLAGS)
    assert all(getattr(lib, f"CAIRN_OPEN_{name.upper()}") == bit for name, bit in _store._FLAGS.items())


def test_names__exports_exist() -> None:
    assert all(hasattr(cairnkv, name) for name in cairnkv.__all__)
    assert cairnkv.version() == cairnkv.__version__ == re.search(r'CAIRN_VERSION "(.*)"', HEADER).group(1)  # type: ignore


def test_names__header_is_read_whole() -> None:
    """A declaration that the script would lose shows: cffi knows each name that the header declares."""
    text = header.cdef(HEADER)
    for name in re.findall(r"^struct (\w+) \{", HEADER, re.M):
        assert ffi.typeof(f"struct {name}").fields
    assert "static inline" not in text and "/*" not in text
    assert header.macros(HEADER) == {name: getattr(lib, name) for name in header.macros(HEADER)}


def test_names__golden_keys_when_derived() -> None:
    """The vector "tokens/small" of docs/KEY.md."""
    desc = cairnkv.Desc(weights=b"\x11" * 32, kv_dtype="bf16", block_tokens=4)
    assert desc.id().hex() == "dd8cd664c523d0bf2117c1836d6f31373fcbd8b9c25348350e486620455fda95"
    derive = desc.derive()
    assert derive.parent.hex() == "50b559994a44e665b4813adc7bf5a970b37916a4cec64e3043cbcbd014df70ae"
    keys = derive.tokens([1, 2, 3, 4, 5]) + derive.tokens(range(6, 11))
    assert [key.hex()[:16] for key in keys] == ["7acd8d1c9ba9bf93", "c61bc6353ac8fc7e"]
    tail, tokens = derive.tail()
    assert tail.hex() == "af58e63057bf23cc353a7554dd1d5e462fe2d1fef1a9d273967a2c6ad7ac1ea0" and tokens == 2


def test_names__engine_hashes_make_keys() -> None:
    none_hash = hashlib.sha256(b"none").hexdigest()
    desc = cairnkv.Desc(weights=b"\x11" * 32, kv_dtype="bf16", block_tokens=16, scheme=f"vllm/sha256/{none_hash}",
                        groups=[cairnkv.Group(16, "full"), cairnkv.Group(16, "swa", cairnkv.Rule.TRAILING, 512)],
                        parts=[cairnkv.Part("rank0"), cairnkv.Part("rank1")], fields={"lookahead": "0", "raw": b"\0\1"})
    desc.block_tokens = 0
    hashes = [bytes([index]) * 32 for index in range(3)]
    keys = desc.derive(1).hashes(hashes)
    want = hashlib.sha256(b"cairnENG" + desc.id() + bytes(24) + (1).to_bytes(4, "little") + (32).to_bytes(4, "little")
                          + hashes[2]).digest()
    assert keys[2] == want == desc.derive(1).hash(hashes[2]) and desc.derive(1).hashes([]) == []
    assert "rank1" in desc.text() and "trailing" in desc.text()
    other = dataclasses.replace(desc, isa="amx")
    assert other.id() != desc.id() and "isa" in cairnkv.explain_desc(desc, other)
    assert cairnkv.explain_desc(desc, dataclasses.replace(desc)) == ""


def test_names__example_of_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (TREE / "docs/PYTHON.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert examples
    for example in examples:
        exec(compile(example, "docs/PYTHON.md", "exec"), {})
    assert "48 tokens, 300000 bytes" in capsys.readouterr().out
