"""Calls an operator of vllm 0.6.3 with tensors that it refuses, for every line of the standard input.

`failing_op.py LIBRARY` writes what reached Python.
"""

from __future__ import annotations

import json
import sys

import torch


def main() -> None:
    torch.ops.load_library(sys.argv[1])
    for _ in sys.stdin:
        sys.stdout.write(json.dumps([failure() for _ in range(3)]) + "\n")
        sys.stdout.flush()


def failure() -> list[str]:
    query = torch.zeros(1, 2, 64, dtype=torch.int32)  # no kernel for whole numbers
    cache = torch.zeros(1, 2, 64, 16, dtype=torch.int32)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    sizes = (16, 1, None, "auto", 1.0, 1.0, 0, 0, 0, 64, 0)
    try:
        torch.ops._C.paged_attention_v1(query, query, cache, cache, 2, 0.125, table, lengths, *sizes)
    except Exception as error:  # noqa: BLE001 -- which one it is, is the question
        return [type(error).__name__, str(error).splitlines()[0]]
    return []


if __name__ == "__main__":
    main()
