"""The one way in which the tests use an engine: generate offline, or serve on loopback and send a burst of requests.

An `Engine` is a recipe's environment with a tree: the released one, a patched copy, a reverted one. The same calls
work for each engine and each layout of its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engines.process import Started, finished, members, started
from tests.engines.recipe import HERE, SGLANG_051, TOKENS, VLLM_032, VLLM_063, Recipe, cache_root, python_of

OFFLINE_SECONDS = 600
START_SECONDS = 400
REQUEST_SECONDS = 120
STANDINS = HERE / "standins"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One engine start within a process: a model, what it is told and the prompts."""

    model: Path
    prompts: tuple[str, ...]
    dtype: str = "float32"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Output:
    """What came back for one prompt."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back from a process: the outputs of each run, what the engine said of itself, and its log."""

    outputs: tuple[tuple[Output, ...], ...]
    facts: dict[str, Any]
    log: str


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that can be started. `standins` names the directory of tests/engines/standins that is on its path."""

    recipe: Recipe
    tree: Path
    work: Path
    """Where its home, logs and answers go."""
    one_process: bool = False
    """vLLM 0.32.0 only: no process of its own for the engine core and the worker."""
    standins: str = ""

    def environment(self) -> dict[str, str]:
        """Return all that a process of this engine sees of the environment."""
        scripts = python_of(self.recipe).parent
        others = (STANDINS / self.standins,) if self.standins else ()
        path = [str(self.tree), *map(str, (*others, HERE / "starting"))]
        chosen = {
            "HF_HUB_OFFLINE": "1",
            "HOME": str(self.work),
            "DO_NOT_TRACK": "1",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "PYTHONNOUSERSITE": "1",
            "PYTHONPATH": ":".join(path),
            "SGLANG_USE_CPU_ENGINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CACHE_ROOT": str(cache_root() / "vllm" / self.recipe.name),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        if self.recipe is VLLM_032:
            chosen["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # else the workers of all tests share one core
        if self.one_process:
            chosen["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        return chosen

    def generate(self, *runs: Run) -> Answer:
        """Generate 16 tokens greedily for every prompt of every run, in one process that is started and ended here."""
        with self.offline() as running:
            return running.generate(*runs)

    @contextlib.contextmanager
    def offline(self) -> Iterator[Offline]:
        """Start a process that generates as long as the block lasts."""
        script = "sglang_offline.py" if self.recipe is SGLANG_051 else "vllm_offline.py"
        command = [python_of(self.recipe), HERE / "inside" / script]
        with started(command, self.environment(), _numbered(self.work, "offline.log"), asked=True) as child:
            yield Offline(child=child, work=self.work, script=script)
            child.finish()
            if status := finished(child, OFFLINE_SECONDS):
                raise child.fail(f"{script} ended with status {status}")

    @contextlib.contextmanager
    def serve(self, model: Path, **environment: str) -> Iterator[Server]:
        """Serve a model on loopback; ready when the block begins, ended when it is left."""
        port = free_port()
        command = [python_of(self.recipe), "-m", *_serving(self.recipe, model, port)]
        with started(command, {**self.environment(), **environment}, _numbered(self.work, "server.log")) as child:
            server = Server(recipe=self.recipe, child=child, url=f"http://127.0.0.1:{port}", model=str(model))
            server.wait_until_ready()
            yield server


@dataclass(frozen=True, kw_only=True)
class Offline:
    """A process that generates. The engine of its last run serves the next one, if that wants the same."""

    child: Started
    work: Path
    script: str

    def generate(self, *runs: Run) -> Answer:
        """Generate 16 tokens greedily for every prompt of every run."""
        question, answered = _numbered(self.work, "question.json"), _numbered(self.work, "answer.json")
        asked = {"tokens": TOKENS, "runs": [{**vars(run), "model": str(run.model)} for run in runs]}
        question.write_text(json.dumps(asked, default=dict))
        self.child.tell(json.dumps([str(question), str(answered)]))
        until = time.monotonic() + OFFLINE_SECONDS
        while not answered.exists():
            if (status := self.child.process.poll()) is not None:
                raise self.child.fail(f"{self.script} ended with status {status}")
            if time.monotonic() > until:
                raise self.child.fail(f"no answer after {OFFLINE_SECONDS} s")
            time.sleep(0.05)
        return read_answer(answered, self.child.said())


@dataclass(frozen=True, kw_only=True)
class Server:
    """An OpenAI-compatible server that runs."""

    recipe: Recipe
    child: Started
    url: str
    model: str

    def wait_until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.child.process.poll() is not None:
                raise self.child.fail(f"the server ended with status {self.child.process.returncode}")
            with contextlib.suppress(OSError):
                self.get("/v1/models", seconds=5)
                return
            time.sleep(0.2)
        raise self.child.fail(f"the server was not ready after {START_SECONDS} s")

    def get(self, path: str, seconds: float = REQUEST_SECONDS) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=seconds) as response:  # noqa: S310 - our own URL
            return bytes(response.read())

    def complete(self, prompt: str) -> str:
        """Return the greedy continuation of a prompt."""
        return str(self._completion(prompt)["text"])

    def output(self, prompt: str) -> Output:
        """Return the greedy continuation with its tokens and log-probabilities; vllm 0.6.3 tells no token's number."""
        if self.recipe is SGLANG_051:
            sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
            return _sglang_output(
                self._post("/generate", {"text": prompt, "sampling_params": sampling, "return_logprob": True})
            )
        said = self._completion(prompt, logprobs=1, return_token_ids=True)
        logprobs = said["logprobs"]["token_logprobs"]
        return Output(tokens=tuple(said["token_ids"]), logprobs=tuple(logprobs), text=said["text"])

    def _completion(self, prompt: str, **more: object) -> Any:
        asked = {"model": self.model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        return self._post("/v1/completions", {**asked, **more})["choices"][0]

    def _post(self, path: str, asked: Mapping[str, object]) -> Any:
        body, headers = json.dumps(asked).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers)  # noqa: S310 - our own URL
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:  # noqa: S310 - our own URL
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise self.child.fail(f"HTTP {error.code}: {error.read().decode(errors='replace')}") from None
        except OSError as error:
            raise self.child.fail(f"no answer: {error}") from None

    def burst(self, prompts: Sequence[str]) -> list[str]:
        """Send all prompts at once, each on a connection of its own; return the continuations in their order."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(self.complete, prompts))

    def outputs(self, prompts: Sequence[str]) -> tuple[Output, ...]:
        """Return the same with tokens and log-probabilities."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return tuple(pool.map(self.output, prompts))

    def processes(self) -> int:
        """Return how many processes the server has besides itself; the tracker of shared memory is Python's."""
        alive = members(self.child.process.pid)
        return len([line for line in alive if "resource_tracker" not in line]) - 1


def read_answer(path: Path, log: str = "") -> Answer:
    """Return what a script of inside/ wrote."""
    facts = json.loads(path.read_text())
    outputs = tuple(tuple(_output(one) for one in run["outputs"]) for run in facts["runs"])
    return Answer(outputs=outputs, facts=facts, log=log)


def free_port() -> int:
    """Return a port of loopback that was free a moment ago; each server gets another one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _sglang_output(said: Mapping[str, Any]) -> Output:
    known = said["meta_info"]["output_token_logprobs"]
    tokens, logprobs = tuple(token for _, token, _ in known), tuple(logprob for logprob, _, _ in known)
    return Output(tokens=tokens, logprobs=logprobs, text=said["text"])


def _output(one: Mapping[str, Any]) -> Output:
    return Output(tokens=tuple(one["tokens"]), logprobs=tuple(one["logprobs"]), text=one["text"])


def _numbered(work: Path, name: str) -> Path:
    """Return a path for a new file: a work directory sees several runs."""
    work.mkdir(parents=True, exist_ok=True)
    return work / f"{len(list(work.glob(f'*-{name}'))):02d}-{name}"


def _serving(recipe: Recipe, model: Path, port: int) -> tuple[str, ...]:
    if recipe is SGLANG_051:
        return (
            *("sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1", "--port", str(port)),
            *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32"),
            *("--max-total-tokens", "4096", "--max-running-requests", "8", "--context-length", "256"),
            *("--mem-fraction-static", "0.3", "--disable-overlap-schedule", "--disable-cuda-graph"),
            *("--grammar-backend", "none", "--skip-server-warmup"),
        )
    # 0.6.3: its other backend for guided decoding does not load beside numpy 1; the frontend needs no own process.
    old = ("--guided-decoding-backend", "lm-format-enforcer", "--disable-frontend-multiprocessing")
    return (
        *("vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "8"),
        *("--num-gpu-blocks-override", "64"),
        *(old if recipe is VLLM_063 else ()),
    )
