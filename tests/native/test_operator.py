"""What stage 1 has for operators that are registered anew: calls that come by no trampoline."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchkit.native.segment import Segment
from patchkit.native.settings import Settings
from tests.native.workshop import PROBED, Workshop, run

pytestmark = pytest.mark.xdist_group("native")

CALLS = 7
SCRIPT = f"""
import ctypes, sys, threading
stage1 = ctypes.PyDLL(sys.argv[1])
index = stage1.patchkit_shim_operator(b"probe")
assert stage1.patchkit_shim_operator(b"nobody") == -1
shapes = (ctypes.c_int32 * 12)(1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0)
number = ctypes.c_uint64

def call():
    for _ in range({CALLS}):
        mode = stage1.patchkit_shim_call(index)
        if mode > 1:
            stage1.patchkit_shim_traced(index, number(10), number(20), shapes, number(0), 256 + 15)

threads = [threading.Thread(target=call) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(index)
"""


def test_calls_are_counted_and_traced(workshop: Workshop, segments: Path) -> None:
    shim = workshop.shim(*PROBED)
    ran = run([sys.executable, "-c", SCRIPT, shim.stage1], segments, shim, Settings(mode="trace"))
    assert (ran.status, ran.err) == (0, "")
    assert ran.calls("probe") == [2 * CALLS]
    [process] = ran.watched
    [symbol] = [one for one in process.counted.symbols if one.calls]
    assert (symbol.way, symbol.object) == ("dispatcher", "torch")
    segment = Segment(process.path)
    records = list(segment.records())
    segment.close()
    said = {
        (record.q, record.k, record.o, record.begin, record.nanoseconds, record.device, record.dtype)
        for record in records
    }
    assert (len(records), said) == (2 * CALLS, {((1, 2, 3), (4, 5, 6), (7, 8, 9), 10, 20, 1, 15)})


def test_in_the_mode_off_nothing_is_counted(workshop: Workshop, segments: Path) -> None:
    shim = workshop.shim(*PROBED)
    ran = run([sys.executable, "-c", SCRIPT, shim.stage1], segments, shim, Settings(mode="off"))
    assert (ran.status, ran.calls("probe")) == (0, [0])


def test_in_a_process_that_is_no_engine_there_is_no_operator(workshop: Workshop, segments: Path) -> None:
    shim = workshop.shim(*PROBED)
    ran = run([sys.executable, "-c", SCRIPT, shim.stage1], segments, shim, PATCHKIT_SHIM="/nowhere")
    assert (ran.status, ran.out, ran.watched) == (0, "-1\n", ())
