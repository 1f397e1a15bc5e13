"""A matrix as one HTML page: no script, nothing loaded from elsewhere; a cell opens to its missing symbols."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from patchkit.abi.matrix import Matrix, MatrixCell, MatrixRow
from patchkit.abi.matrix_structs import StructRow

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif }
body { margin: 2rem }
table { border-collapse: collapse }
th, td { padding: .35rem .6rem; border: 1px solid #8886; vertical-align: top; text-align: left }
thead th { position: sticky; top: 0; background: Canvas }
td.fits { background: #2a93 }
td.note { background: #c903 }
td.lacks { background: #c333 }
code { font-size: 12px; overflow-wrap: anywhere }
summary { cursor: pointer }
details ul { margin: .3rem 0; padding-left: 1.1rem; max-width: 44rem }
small { opacity: .75 }
"""


def matrix_page(matrix: Matrix, words: Mapping[str, str]) -> str:
    """Return the page; `words` gives symbols in words."""
    head = "".join(f"<th scope=col>torch {escape(one)}</th>" for one in matrix.torches)
    rows = "\n".join(_row(row, words) for row in matrix.rows)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Which engine fits which torch</title>
<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>
<h1>Which engine fits which torch</h1>
<p>Torch symbols that a shared object needs and a torch does not export; 0 means that it loads as far as symbols go.</p>
<table><thead><tr><th scope=col>engine</th><th scope=col>file</th>{head}<th scope=col>CUDA graphs</th></tr></thead>
<tbody>
{rows}
</tbody></table>
{_graphs(matrix)}{_structs(matrix, head)}</body></html>
"""


def _graphs(matrix: Matrix) -> str:
    """Return the runs in CUDA graphs one by one, nothing without any."""
    if not matrix.graphs:
        return ""
    return f"<ul>{''.join(f'<li>{escape(one.words)}</li>' for one in matrix.graphs)}</ul>\n"


def _structs(matrix: Matrix, head: str) -> str:
    """Return the table of structs, nothing when none are stored."""
    if not matrix.structs:
        return ""
    rows = "\n".join(_struct(row) for row in matrix.structs)
    own = "".join(
        f"<li><code>{escape(one.name)}</code> of {escape(one.engine)}: {one.size} bytes</li>"
        for one in matrix.engine_structs
    )
    return f"""<h2>Structs</h2>
<p>Bytes of a struct; torches with one letter in a row agree on all its fields.</p>
<table><thead><tr><th scope=col>struct</th>{head}</tr></thead>
<tbody>
{rows}
</tbody></table>
{f"<ul>{own}</ul>" if own else ""}
"""


def _struct(row: StructRow) -> str:
    cells = "".join(f"<td>{cell.size or ''} <small>{cell.variant}</small></td>" for cell in row.cells)
    return f"<tr><th scope=row><code>{escape(row.name)}</code></th>{cells}</tr>"


def _row(row: MatrixRow, words: Mapping[str, str]) -> str:
    cells = "".join(_cell(cell, words) for cell in row.cells)
    file = f"<code>{escape(row.path)}</code><br><small>{row.torch_symbols} torch symbols</small>"
    graphs = f"<td>{escape(row.graph_words)}</td>"
    return f"<tr><th scope=row>{escape(row.engine)}</th><td>{file}</td>{cells}{graphs}</tr>"


def _cell(cell: MatrixCell, words: Mapping[str, str]) -> str:
    kind = "lacks" if cell.missing else "note" if cell.note else "fits"
    note = f" <small>{escape(cell.note)}</small>" if cell.note else ""
    if not cell.missing:
        return f'<td class="{kind}">0{note}</td>'
    listed = "".join(f"<li><code>{escape(words.get(name, name))}</code></li>" for name in cell.missing)
    return f'<td class="{kind}"><details><summary>{len(cell.missing)}{note}</summary><ul>{listed}</ul></details></td>'
