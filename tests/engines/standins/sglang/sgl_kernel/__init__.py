"""Stands in for sgl_kernel where sglang as released is compared with the oracle: names that raise when called."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types

__path__: list[str] = []


class _ScalarTypes:
    def __getattr__(self, name: str) -> str:
        return name


def _look_up(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "scalar_types":
        return _ScalarTypes()

    def refuse(*_arguments, **_named):
        raise RuntimeError(f"the stand-in for sgl_kernel.{name} was called")

    return refuse


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(f"{__name__}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _look_up
        return module

    def exec_module(self, module):
        pass


__getattr__ = _look_up
sys.meta_path.append(_Submodules())
