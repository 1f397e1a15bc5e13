"""Generates with vLLM's LLM, one engine after the other in one process: 0.6.3 and 0.32.0 have the same words for it."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from exchange import answer, asked


def run(one: dict, count: int) -> dict:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=one["model"],
        dtype=one["dtype"],
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        disable_log_stats=True,
    )
    steps = count_steps(llm.llm_engine)
    sampling = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=1)
    done = llm.generate(one["prompts"], sampling, use_tqdm=False)
    outputs = []
    for request in done:
        output = request.outputs[0]
        tokens = list(output.token_ids)
        logprobs = [known[token].logprob for known, token in zip(output.logprobs, tokens, strict=True)]
        outputs.append({"tokens": tokens, "logprobs": logprobs, "text": output.text})
    processes = count_processes()
    if processes:  # 0.32.0's; they would otherwise live as long as this one
        llm.llm_engine.engine_core.shutdown()
    return {"outputs": outputs, "steps": len(steps), "processes": processes}


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


def forget_engine() -> None:
    """Give back what the last engine held, so that the next one in this process finds an empty house."""
    gc.collect()
    if "vllm.v1.engine.llm_engine" in sys.modules:
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


def main() -> None:
    import vllm

    question, runs = asked(), []
    for one in question["runs"]:
        with environment(one["environment"]):
            runs.append(run(one, question["tokens"]))
        forget_engine()
    facts = {"version": vllm.__version__, "processes": [one["processes"] for one in runs]}
    answer({**facts, "runs": runs})


if __name__ == "__main__":
    main()
