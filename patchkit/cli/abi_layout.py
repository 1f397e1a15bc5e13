"""`patchkit abi layout`: a struct drawn, and what differs from another release, a header or a loaded library."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.cli.options import json_option
from patchkit.cli.show_layout import (
    Shown,
    layouts_document,
    list_types,
    require_all_told,
    show_layouts,
    shown_of,
    shown_of_header,
    shown_of_library,
)
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("layout", short_help="Draw a struct: offset, size, field, padding.")
@click.argument("name", required=False, default="", metavar="[STRUCT]")
@click.option(
    "--of", "release", default="", metavar="NAME==VERSION", help="A release whose types are stored, or LIB.so."
)
@click.option("--against", default="", metavar="NAME==VERSION", help="Another release: say what differs.")
@click.option("--header", type=_FILE, help="A C header: what cffi and the C compiler make of it.")
@click.option("--library", type=_FILE, help="A library with a table of its layouts. It is loaded.")
@click.option("--include", "includes", multiple=True, type=_DIRECTORY, help="For the header's #includes. Repeatable.")
@click.option("--compiler", default="cc", show_default=True, help="The C compiler.")
@json_option
def command(
    *,
    name: str,
    release: str,
    against: str,
    header: Path | None,
    library: Path | None,
    includes: tuple[Path, ...],
    compiler: str,
    output: Output,
) -> int:
    """Draw a struct of a release, of a C header, or of a library that tells its layouts (--of LIB.so, --library).

    Give two of them and the differences are listed field by field; the exit status is 1 when one breaks. Without
    STRUCT the names that are known are listed. A library is loaded, so only for one of ours.

    \b
    Examples:
      patchkit abi layout Flash_fwd_params --of vllm==0.6.3
      patchkit abi layout TensorImpl --of torch==2.11.0 --against torch==2.13.0+cpu
      patchkit abi layout patchkit_attention --of libattention.so
      patchkit abi layout --header native/include/patchkit/attention.h --library libattention.so
    """
    sources: list[tuple[Shown, ...]] = []
    sources += [shown_of(one, name) for one in (release, against) if one]
    sources += [shown_of_library(library, name)] if library is not None else []
    sources += [shown_of_header(header, compiler, includes, name)] if header is not None else []
    if not 1 <= len(sources) <= 2:  # noqa: PLR2004 -- one is drawn, two are compared
        raise UsageError(
            "a struct of which release, header or library?",
            why="one of --of, --against, --header and --library draws it, two of them compare it",
            hint="patchkit abi layout Flash_fwd_params --of vllm==0.6.3",
        )
    if header is not None and len(sources) == 2 and not sources[0][0].typed:  # noqa: PLR2004
        require_all_told(*sources)
    if output.machine:
        output.document(layouts_document(sources))
    elif not name and len(sources) == 1:
        list_types(sources[0], output)
    else:
        show_layouts(sources, output)
    return int(ExitStatus.REFUSED if any(one.breaks(sources[0]) for one in sources[-1]) else ExitStatus.DONE)
