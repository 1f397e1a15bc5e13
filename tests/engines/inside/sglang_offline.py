"""Generates with sglang's Engine, one after the other. Its scheduler and detokenizer are processes of their own."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys

from conversation import converse


def run(one: dict, count: int) -> dict:
    import sglang

    os.environ.update(one["environment"])
    asyncio.set_event_loop(asyncio.new_event_loop())
    engine = sglang.Engine(
        model_path=one["model"],
        dtype=one["dtype"],
        device="cpu",
        attention_backend="torch_native",
        max_total_tokens=4096,
        max_running_requests=8,
        context_length=256,
        mem_fraction_static=0.3,
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
        grammar_backend="none",
        log_level="info",
    )
    asyncio.set_event_loop(asyncio.new_event_loop())  # the engine's uvloop has none for the caller
    try:
        sampling = {"temperature": 0.0, "max_new_tokens": count, "ignore_eos": True}
        done = engine.generate(one["prompts"], sampling, return_logprob=True)
    finally:
        engine.shutdown()
    outputs = []
    for request in done:
        known = request["meta_info"]["output_token_logprobs"]
        outputs.append(
            {
                "tokens": [token for _, token, _ in known],
                "logprobs": [logprob for logprob, _, _ in known],
                "text": request["text"],
            }
        )
    return {"outputs": outputs}


def reply(question: dict) -> dict:
    import sglang

    runs = [run(one, question["tokens"]) for one in question["runs"]]
    others = ("sgl_kernel", "vllm")
    return {
        "version": sglang.__version__,
        "strangers": [name for name in others if name in sys.modules],
        "importable": [name for name in others if importlib.util.find_spec(name)],
        "runs": runs,
    }


if __name__ == "__main__":
    converse(reply)
