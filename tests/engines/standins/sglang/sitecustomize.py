"""Gives torch the probe for AMX that 2.11 dropped, before sglang asks for it."""

import gc
import importlib.abc
import importlib.util
import sys


class _WithProbe(importlib.abc.MetaPathFinder):
    """Finds torch as it is, and adds the probe once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_add(module):
            load(module)
            module._C._cpu._is_amx_tile_supported = lambda: False

        spec.loader.exec_module = load_and_add
        return spec


sys.meta_path.insert(0, _WithProbe())
gc.set_threshold(200_000, 20, 20)  # as tests/engines/starting, which this file hides
