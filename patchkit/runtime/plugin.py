"""A plugin of vLLM (entry point group vllm.general_plugins): it lets the shim in where LD_PRELOAD cannot.

PATCHKIT_SHIM_WAY says how. `plugin`: stage 1 is opened before the libraries that are loaded afterwards. `dispatcher`:
operators of torch are registered anew, by a function that counts the call, records it, changes its scale, and calls
the kernel that was there. It stands alone: `patchkit native` lays it into a directory of PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
import warnings
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

_COUNT, _TRANSFORM = 1, 3
_TYPES = {"torch.float32": 6, "torch.float64": 7, "torch.float16": 5, "torch.bfloat16": 15}  # c10::ScalarType
_UNKNOWN = 255
_FOR_ALL = "CompositeImplicitAutograd"  # of an operator that was defined together with its function
_NAMES = {"q": ("query", "q"), "k": ("key_cache", "k"), "o": ("out", "output")}
_SCALES = ("scale", "softmax_scale")


@cache
def begin() -> None:
    """Let the shim in, once a process; called by vLLM."""
    way = os.environ.get("PATCHKIT_SHIM_WAY")
    if way == "plugin":
        ctypes.CDLL(os.environ["PATCHKIT_SHIM_STAGE1"], mode=ctypes.RTLD_GLOBAL)
    elif way == "dispatcher":
        pairs = [pair.split("=") for pair in os.environ["PATCHKIT_SHIM_OPERATORS"].split(",")]
        overriding = _Overriding(dict(pairs))
        if not overriding.is_done():
            sys.meta_path.insert(0, overriding)


class _Overriding:
    """Operators that are to be registered anew as soon as a library has registered them: a finder of modules.

    It finds no module itself: it looks after the import of each extension whether the operators are there.
    """

    def __init__(self, operators: dict[str, str]) -> None:
        self._waiting = operators
        self._stage1 = ctypes.PyDLL(os.environ["PATCHKIT_SHIM_STAGE1"])
        self._stage1.patchkit_shim_qk_scale.restype = ctypes.c_uint64

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of an extension with a loader that looks afterwards; None for other modules."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not (spec.origin or "").endswith(".so") or not name.startswith("vllm."):
            return None
        loader: Any = spec.loader
        create = loader.create_module

        def create_module(of: Any) -> Any:
            try:
                return create(of)
            finally:  # a library that is no module of Python has registered its operators all the same
                self.is_done()

        loader.create_module = create_module
        return spec

    def is_done(self) -> bool:
        """Register anew what is there; tell whether nothing is left to wait for."""
        import torch

        for operator, symbol in list(self._waiting.items()):
            if torch._C._dispatch_has_kernel(operator):  # noqa: SLF001 -- no public name
                del self._waiting[operator]
                self._override(operator, symbol)
        return not self._waiting

    def _override(self, operator: str, symbol: str) -> None:
        import torch

        index = self._stage1.patchkit_shim_operator(symbol.encode())
        keys = _keys(operator)
        if index < 0 or not hasattr(torch.library, "get_kernel") or not keys:
            why = "no segment" if index < 0 else "torch.library.get_kernel or a kernel is missing"
            print(f"patchkit shim: {operator} is not overridden: {why}", file=sys.stderr)  # noqa: T201 -- an engine's log
            return
        namespace, _, name = operator.partition("::")
        library = torch.library.Library(namespace, "IMPL")
        _libraries.append(library)
        arguments = getattr(getattr(torch.ops, namespace), name).default._schema.arguments  # noqa: SLF001
        places = {one.name: place for place, one in enumerate(arguments)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is registered over another is what is meant
            for key in keys:
                wrapper = _wrapper(self._stage1, index, torch.library.get_kernel(operator, key), places)
                library.impl(name, wrapper, key, with_keyset=True, allow_override=True)


def _keys(operator: str) -> list[str]:
    """Return where an operator has kernels; one kernel for all stands in for each of them."""
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 -- no public name
    return [key for key in ("CPU", "CUDA") if has_kernel(operator, key) or has_kernel(operator, _FOR_ALL)]


_libraries: list[Any] = []  # what is registered is taken back when its library goes


def _wrapper(stage1: Any, index: int, kernel: Any, places: dict[str, int]) -> Any:
    """Return what is registered instead of a kernel."""
    count, number, traced = stage1.patchkit_shim_call, ctypes.c_uint64, stage1.patchkit_shim_traced
    scale_at = next((places[name] for name in _SCALES if name in places), None)
    tensors_at = [next((places[name] for name in names if name in places), None) for names in _NAMES.values()]

    def call(keys: Any, *given: Any, **named: Any) -> Any:
        mode = count(index)
        if mode <= _COUNT:
            return kernel.call_boxed(keys, *given, **named)
        if mode == _TRANSFORM and scale_at is not None:
            factor = struct.unpack("<d", struct.pack("<Q", stage1.patchkit_shim_qk_scale()))[0]
            given = (*given[:scale_at], given[scale_at] * factor, *given[scale_at + 1 :])
        scale = 0.0 if scale_at is None else given[scale_at]
        tensors = [None if place is None or place >= len(given) else given[place] for place in tensors_at]
        shapes, kind = _shapes(tensors), _kind(tensors[0])
        begun = time.monotonic_ns()
        result = kernel.call_boxed(keys, *given, **named)
        took = time.monotonic_ns() - begun
        traced(index, number(begun), number(took), shapes, number(*struct.unpack("<Q", struct.pack("<d", scale))), kind)
        return result

    return call


def _shapes(tensors: list[Any]) -> Any:
    """Return the shapes of q, k and o, four numbers each, 0 beyond the last dimension."""
    sizes = [[*(() if tensor is None else tensor.shape), 0, 0, 0, 0][:4] for tensor in tensors]
    return (ctypes.c_int32 * 12)(*(size for shape in sizes for size in shape))


def _kind(tensor: Any) -> int:
    if tensor is None:
        return _UNKNOWN
    return _TYPES.get(str(tensor.dtype), _UNKNOWN) | (256 if tensor.is_cuda else 0)
