"""The command line of a benchmark that is packed on one machine and run on another, which has a GPU but no network."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def pack_or_run(description: str | None, pack: Callable[[Path], int], run: Callable[[Path], int]) -> int:
    """Read `pack DIR` or `run --out DIR`, do it and return its exit status."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("directory", type=Path)
    packing.set_defaults(act=pack)
    running = commands.add_parser("run")
    running.add_argument("--out", dest="directory", metavar="DIR", type=Path, required=True)
    running.set_defaults(act=run)
    given = parser.parse_args()
    status: int = given.act(given.directory)
    return status
