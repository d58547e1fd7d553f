# SPDX-License-Identifier: Apache-2.0
"""The parts of cairnkv.vllm that need no vLLM. With it: tests/e2e/ci_vllm_*.sh."""
import json
import time

import pytest
from cairnkv.vllm.cost import Cost
from cairnkv.vllm.hints import Hints
from cairnkv.vllm.identity import Digests, Refused, adapter_scale, dtype_name, hash_scheme, rope_text, weight_files


class Rope:
    def __init__(self, **said):
        self.__dict__.update(said)


def test_cost__is_found_when_steps_differ():
    cost = Cost()
    cost.add(100, 100, 9.0)  # the first is not counted
    for begin, count in ((0, 512), (512, 512), (0, 2048), (2048, 2048), (0, 128)):
        cost.add(count, (begin + count) ** 2 - begin ** 2, 5e-4 * count + 1e-7 * ((begin + count) ** 2 - begin ** 2))
    a, b = cost.news()
    assert a == pytest.approx(5e-4, rel=1e-6) and b == pytest.approx(1e-7, rel=1e-6)
    assert cost.news() is None


def test_cost__is_never_negative_when_steps_are_noise():
    cost = Cost()
    for count, seconds in ((10, 1.0), (1000, 0.5), (500, 2.0), (2000, 0.1), (100, 3.0)):
        cost.add(count, count * count, seconds)
        assert cost.a_s >= 0 and cost.b_s >= 0


def test_cost__is_not_told_before_it_is_known():
    cost = Cost()
    for _ in range(3):
        cost.add(512, 512 * 512, 0.5)
        assert cost.news() is None


def test_hints__are_read_when_they_are_well_formed():
    hints = Hints.read({"cairn": {"session": "talk", "ttl_s": 60.5, "pin": True, "close": 0}})
    assert (hints.session, hints.ttl_s, hints.pin, hints.close) == ("talk", 60, True, False)


@pytest.mark.parametrize("params", [
    None, "cairn", {"cairn": "x"}, {"cairn": {"session": 3}}, {"cairn": {"session": ""}},
    {"cairn": {"session": "x" * 256}},
    {"cairn": {"session": "\ud800"}}, {"cairn": {"session": "a\0b"}}, {"cairn": {"session": "a", "ttl_s": -1}},
    {"cairn": {"session": "a", "ttl_s": float("nan")}}, {"cairn": {"session": "a", "ttl_s": 1e300}},
    {"cairn": {"session": "a", "owner": ["x"]}}])
def test_hints__are_left_aside_when_they_are_not(params):
    assert Hints.read(params) == Hints()


def test_identity__refuses_dtype_when_it_is_not_known():
    assert dtype_name("torch.bfloat16") == "bf16" and dtype_name("fp8") == "fp8_e4m3"
    with pytest.raises(Refused):
        dtype_name("nvfp4")


def test_identity__differs_when_none_hash_or_algorithm_does():
    schemes = {hash_scheme(algorithm, seed) for algorithm in ("sha256", "sha256_cbor") for seed in (b"a", b"b")}
    assert len(schemes) == 4


def test_rope__is_one_text_when_keys_are_in_another_order():
    one = rope_text(Rope(rope_parameters={"rope_type": "default", "rope_theta": 1e5}), 4096)
    assert one == rope_text(Rope(rope_parameters={"rope_theta": 1e5, "rope_type": "default"}), 8192)
    assert one != rope_text(Rope(rope_parameters={"rope_theta": 1e4, "rope_type": "default"}), 4096)
    assert rope_text(Rope(), 4096) is None


def test_rope__depends_on_the_context_when_its_angles_do():
    rope = Rope(rope_scaling={"rope_type": "dynamic", "factor": 2.0}, rope_theta=1e4)
    assert rope_text(rope, 4096) != rope_text(rope, 8192)


def test_weights__are_of_the_best_kind_when_there_are_several(tmp_path):
    for name in ("model.bin", "b.safetensors", "a.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in weight_files(str(tmp_path))] == ["a.safetensors", "b.safetensors"]
    assert weight_files(str(tmp_path / "model.bin")) == [tmp_path / "model.bin"]


def test_weights__are_an_error_when_there_are_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        weight_files(str(tmp_path))


@pytest.mark.parametrize("said, scale", [
    ({"r": 8, "lora_alpha": 16}, 2.0), ({"r": 16, "lora_alpha": 16, "use_rslora": True}, 4.0), ({"r": 8}, None),
    ({"r": 0, "lora_alpha": 1}, None), ([], None)])
def test_adapter__has_the_scale_that_its_config_says(tmp_path, said, scale):
    (tmp_path / "adapter_config.json").write_text(json.dumps(said))
    got = adapter_scale(tmp_path)
    assert got is None if scale is None else float(got) == scale


def test_adapter__differs_when_one_byte_of_its_weights_does(tmp_path):
    digests = Digests()
    for name, last in (("a", b"1"), ("b", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_model.safetensors").write_bytes(b"w" * 1000 + last)
        assert digests.of_adapter(str(tmp_path / name)) is None  # not yet: everything misses until it is known
    until = time.monotonic() + 30
    while None in (found := [digests.of_adapter(str(tmp_path / name)) for name in "ab"]):
        assert time.monotonic() < until
    assert found[0] != found[1]
