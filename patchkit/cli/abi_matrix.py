"""`patchkit abi matrix`: engines by torch releases."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.abi.matrix import Matrix, MatrixCell, MatrixRow
from patchkit.abi.matrix_structs import StructCell
from patchkit.cli.options import json_option
from patchkit.cli.reading import require_file
from patchkit.errors import ExitStatus
from patchkit.output import Output


@click.command("matrix", short_help="Engines by torch releases: how many symbols are missing.")
@click.option(
    "--engines", default="", metavar="NAME==VERSION,...", help="Engines or snapshot files; default: all stored."
)
@click.option("--torch", "torches", default="", metavar="VERSION,...", help="Torch releases; default: all stored.")
@click.option(
    "--python", type=click.Path(path_type=Path), metavar="EXE", help="A last column: the torch installed there."
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that opens to the missing symbols."
)
@json_option
def command(*, engines: str, torches: str, python: Path | None, html: Path | None, output: Output) -> int:
    """Show how many torch symbols each shared object lacks with each torch, from stored facts, without a download.

    0 says that it loads as far as symbols go. `sglang` means the kernels that it pins. Beside the number stands another
    CUDA than torch's, or a torch without CUDA. The last column is what came out when an entry point of the file was
    captured in a CUDA graph on a GPU, and the day. Below are the bytes of structs: torches with one letter agree on
    all fields.

    \b
    Examples:
      patchkit abi matrix
      patchkit abi matrix --engines vllm==0.6.3,sglang==0.5.1 --torch 2.4.0,2.8.0,2.13.0+cpu
      patchkit abi matrix --engines vllm==0.33.0 --html matrix.html
    """
    from patchkit.abi.demangle import demangle
    from patchkit.abi.graph_proofs import read_proofs
    from patchkit.abi.matrix import build_matrix, chosen_engines, chosen_proofs, chosen_torches
    from patchkit.abi.matrix_page import matrix_page
    from patchkit.abi.snapshot import stored_facts
    from patchkit.cli.abi_ground import torch_of, write_file
    from patchkit.resources import proofs_file

    facts = stored_facts()
    columns = list(chosen_torches(_split(torches), facts))
    if python is not None:
        columns.append(torch_of(python, facts))
    asked = _split(engines)
    for file in (name for name in asked if name.endswith(".json")):
        require_file(Path(file))
    wheels = chosen_engines(asked, facts)
    proofs = chosen_proofs(read_proofs(proofs_file()), wheels, facts)
    matrix = build_matrix(wheels, columns, types=facts.types, proofs=proofs)
    if html is not None:
        words = demangle(name for row in matrix.rows for cell in row.cells for name in cell.missing)
        write_file(html, matrix_page(matrix, words))
    if output.machine:
        output.document(_document(matrix))
    else:
        _show(matrix, output)
    return ExitStatus.DONE


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _told_apart(row: MatrixRow, matrix: Matrix) -> str:
    """Return the end of a file's path, as much of it as no other file of the engine has."""
    others = [one.path for one in matrix.rows if one.engine == row.engine and one.path != row.path]
    parts = row.path.split("/")
    for kept in range(1, len(parts)):
        end = "/".join(parts[-kept:])
        if not any(f"/{other}".endswith(f"/{end}") for other in others):
            return end
    return row.path


def _show(matrix: Matrix, output: Output) -> None:
    engine = ""
    names = [_told_apart(row, matrix) for row in matrix.rows]
    width = max((len(name) for name in names), default=0)
    columns = [max(len(torch), 6) for torch in matrix.torches]
    titles = "  ".join(f"{torch:>{column}}" for torch, column in zip(matrix.torches, columns, strict=True))
    output.line(f"  {'':{width}}  {titles}  CUDA graphs", style="head")
    for row, name in zip(matrix.rows, names, strict=True):
        if row.engine != engine:
            engine = row.engine
            fitting = ", ".join(matrix.fitting(engine))
            output.line(f"{engine}  fits, of these: {fitting}" if fitting else f"{engine}  fits none", style="head")
        cells = "  ".join(f"{_mark(cell):>{column}}" for cell, column in zip(row.cells, columns, strict=True))
        output.line(f"  {name:{width}}  {cells}  {row.graph_words}")
    notes = sorted({cell.note for row in matrix.rows for cell in row.cells if cell.note})
    if notes:
        output.line(f"*: {'; '.join(notes)}", style="dim")
    for one in matrix.unreadable:
        output.line(f"{one.engine} {one.path}: cannot be read: {one.fault}", style="bad")
    for proof in matrix.graphs:
        output.line(proof.words, style="good" if proof.cuda_graph_safe else "bad")
    _show_structs(matrix, output)


def _show_structs(matrix: Matrix, output: Output) -> None:
    width = max((len(row.name) for row in matrix.structs), default=0)
    columns = [max(len(torch), 6) for torch in matrix.torches]
    if matrix.structs:
        titles = "  ".join(f"{torch:>{column}}" for torch, column in zip(matrix.torches, columns, strict=True))
        output.line(f"  {'structs, bytes':{width}}  {titles}", style="head")
    for row in matrix.structs:
        cells = "  ".join(f"{_struct_mark(cell):>{column}}" for cell, column in zip(row.cells, columns, strict=True))
        output.line(f"  {row.name:{width}}  {cells}")
    for one in matrix.engine_structs:
        output.line(f"  {one.name} of {one.engine}: {one.size} bytes")


def _struct_mark(cell: StructCell) -> str:
    return "-" if cell.size is None else f"{cell.size} {cell.variant}"


def _mark(cell: MatrixCell) -> str:
    return f"{len(cell.missing)}{'*' if cell.note else ''}"


def _document(matrix: Matrix) -> dict[str, object]:
    return {
        "schema": 1,
        "torches": list(matrix.torches),
        "rows": [
            {
                "engine": row.engine,
                "path": row.path,
                "undefined": row.undefined,
                "torch_symbols": row.torch_symbols,
                "cells": [
                    {"torch": cell.torch, "missing": list(cell.missing), "note": cell.note} for cell in row.cells
                ],
                "cuda_graphs": row.graph_words,
            }
            for row in matrix.rows
        ],
        "unreadable": [{"engine": one.engine, "path": one.path, "fault": one.fault} for one in matrix.unreadable],
        "cuda_graph_runs": [{name: getattr(one, name) for name in one.__slots__} for one in matrix.graphs],
        "structs": [
            {
                "name": row.name,
                "cells": [
                    {"torch": torch, "size": cell.size, "variant": cell.variant}
                    for torch, cell in zip(matrix.torches, row.cells, strict=True)
                ],
            }
            for row in matrix.structs
        ],
        "engine_structs": [{"engine": one.engine, "name": one.name, "size": one.size} for one in matrix.engine_structs],
    }
