"""Makes torch say that the processor has AMX, and ask Linux for the permission: torch itself looks at CPUID first.

So the engine meets a processor with AMX below a kernel that permits none, as in a sandbox. Only torch's two words are
stood in for; the question is a real system call. Who was told of AMX, and what Linux answered, goes to the log. With
STANDIN_AMX=silent there is no AMX to tell of.
"""

import ctypes
import gc
import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


def _claim():
    if os.environ.get("STANDIN_AMX") == "silent":
        return False
    _log(f"{Path(sys._getframe(1).f_code.co_filename).name} is told of AMX")
    return True


def _ask():
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA)
    answer = os.strerror(ctypes.get_errno()) if refused else "permitted"
    _log(f"arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA): {answer}")
    return not refused


def _log(line):
    os.write(2, f"\n[amx] {line}\n".encode())  # past what a worker puts before each line


class _WithAmx(importlib.abc.MetaPathFinder):
    """Finds torch as it is, and changes its words once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)  # who only looks whether there is a torch does not load it
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            module.cpu._is_amx_tile_supported = _claim
            module.cpu._init_amx = _ask

        spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, _WithAmx())
gc.set_threshold(200_000, 20, 20)  # as tests/engines/starting, which this file hides
