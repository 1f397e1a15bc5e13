"""Generates with vLLM's LLM, one engine after the other in one process: 0.6.3 and 0.32.0 have the same words for it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import sys

from conversation import converse

BLOCKS = 64
"""Of the cache for keys and values; what fills memory otherwise takes longer than all tokens."""


class House:
    """Has one engine at a time. A run that wants the same one as the last run finds it there."""

    def __init__(self) -> None:
        self.wanted, self.engine, self.steps = None, None, []

    def open(self, one: dict):
        """Return the engine that a run wants, with no step counted."""
        wanted = {name: part for name, part in one.items() if name != "prompts"}
        if wanted != self.wanted:
            self.close()
            self.wanted, self.engine = wanted, start(one)
            self.steps = count_steps(self.engine.llm_engine)
        self.steps.clear()
        return self.engine

    def close(self) -> None:
        """End the engine and give back what it held, so that the next one finds an empty house."""
        if self.engine is None:
            return
        if count_processes():  # 0.32.0's; they would otherwise live as long as this one
            self.engine.llm_engine.engine_core.shutdown()
        self.engine = None
        gc.collect()
        if "vllm.v1.engine.llm_engine" in sys.modules:
            from vllm.distributed import cleanup_dist_env_and_memory

            cleanup_dist_env_and_memory()


def start(one: dict):
    from vllm import LLM

    gc.freeze()  # 0.32.0 collects garbage five times as it starts: it need not look through all that was imported
    return LLM(
        model=one["model"],
        dtype=one["dtype"],
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        num_gpu_blocks_override=BLOCKS,
        disable_log_stats=True,
    )


def run(one: dict, count: int, house: House) -> dict:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=1)
    done = house.open(one).generate(one["prompts"], sampling, use_tqdm=False)
    outputs = []
    for request in done:
        output = request.outputs[0]
        tokens = list(output.token_ids)
        logprobs = [known[token].logprob for known, token in zip(output.logprobs, tokens, strict=True)]
        outputs.append({"tokens": tokens, "logprobs": logprobs, "text": output.text})
    return {"outputs": outputs, "steps": len(house.steps), "processes": count_processes()}


@contextlib.contextmanager
def environment(changed: dict):
    before = dict(os.environ)
    os.environ.update(changed)
    yield
    os.environ.clear()
    os.environ.update(before)


def count_steps(engine) -> list[None]:
    """Return a list that grows with every step of an engine; the engine's class is left alone."""
    steps: list[None] = []
    step = engine.step

    def counted(*arguments):
        steps.append(None)
        return step(*arguments)

    engine.step = counted
    return steps


def count_processes() -> int:
    """Return how many processes of the engine run below this one; the tracker of shared memory is Python's, not its."""
    import psutil

    def counts(child: psutil.Process) -> bool:
        try:
            return "resource_tracker" not in " ".join(child.cmdline())
        except psutil.NoSuchProcess:  # ended just now, or not yet waited for
            return False

    return sum(counts(child) for child in psutil.Process().children(recursive=True))


def register_models() -> None:
    """Name 0.6.3's own classes to its registry: to look at one it would import all of vLLM again, in a process."""
    from vllm import ModelRegistry
    from vllm.model_executor.models import llama, opt, qwen2

    for own in (llama.LlamaForCausalLM, opt.OPTForCausalLM, qwen2.Qwen2ForCausalLM):
        ModelRegistry.register_model(own.__name__, own)


def main() -> None:
    import vllm

    if importlib.util.find_spec("vllm.v1") is None:  # 0.32.0 remembers what it saw of a class
        register_models()
    house = House()

    def reply(question: dict) -> dict:
        runs = []
        for one in question["runs"]:
            with environment(one["environment"]):
                runs.append(run(one, question["tokens"], house))
        return {"version": vllm.__version__, "processes": [one["processes"] for one in runs], "runs": runs}

    converse(reply)
    house.close()


if __name__ == "__main__":
    main()
