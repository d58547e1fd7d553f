#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vLLM engine that a test talks to: one JSON object a line on stdin, one answer a line on the third stream (fd 3).

    engine.py MODEL KV-TRANSFER-CONFIG(JSON, or "") [OPTION=VALUE ...]      options: those of vllm.LLM, values in JSON

    {"prompt": [ids], "max_tokens": n, "params": {...}}    -> {"ids": [...], "cached": n, "seconds": s}
    {"prompts": [[ids], ...], "max_tokens": n}              -> {"answers": [[ids], ...]}     all at once
    {"tokens": "text"}                                      -> {"ids": [...]}
    {"reset": true}                                         -> {"ok": bool}      vLLM's own prefix cache
    {"metrics": true}                                       -> {"vllm:cairn_...": value, ...}

It says {"ready": true, ...} when the engine is up. One process a life; it ends with its stdin.
"""
import json
import os
import sys
import time


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    model, transfer = sys.argv[1:3]
    options = {"max_model_len": 2048, "enforce_eager": True, "enable_prefix_caching": True, "seed": 0, "dtype": "float32",
               "disable_log_stats": False, "max_num_batched_tokens": 2048}
    for option in sys.argv[3:]:
        name, value = option.split("=", 1)
        options[name] = json.loads(value)
    if transfer:
        options["kv_transfer_config"] = json.loads(transfer)
    answers = os.fdopen(3, "w", buffering=1)
    llm = LLM(model=model, **options)

    def answer(**what: object) -> None:
        answers.write(json.dumps(what) + "\n")

    answer(ready=True)
    for line in sys.stdin:
        what = json.loads(line)
        if "prompt" in what:
            params = SamplingParams(temperature=0, max_tokens=what.get("max_tokens", 1), ignore_eos=True)
            if what.get("params"):
                params.extra_args = {"kv_transfer_params": what["params"]}
            began = time.monotonic()
            out = llm.generate(TokensPrompt(prompt_token_ids=what["prompt"]), params, use_tqdm=False)[0]
            answer(ids=list(out.outputs[0].token_ids), cached=out.num_cached_tokens, seconds=time.monotonic() - began)
        elif "prompts" in what:
            params = SamplingParams(temperature=0, max_tokens=what["max_tokens"], ignore_eos=True)
            outs = llm.generate([TokensPrompt(prompt_token_ids=one) for one in what["prompts"]], params, use_tqdm=False)
            answer(answers=[list(out.outputs[0].token_ids) for out in outs])
        elif "tokens" in what:
            answer(ids=llm.get_tokenizer().encode(what["tokens"], add_special_tokens=False))
        elif "reset" in what:
            answer(ok=llm.reset_prefix_cache())
        elif "metrics" in what:
            answer(**{metric.name: metric.value for metric in llm.get_metrics()
                      if metric.name.startswith(("vllm:cairn_", "vllm:num_preemptions")) and hasattr(metric, "value")})


if __name__ == "__main__":
    main()
