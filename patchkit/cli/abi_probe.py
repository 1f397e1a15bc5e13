"""`patchkit abi probe`: read the types of a torch from its headers, and write them down as facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchkit.cli.options import json_option
from patchkit.counting import counted
from patchkit.errors import UsageError
from patchkit.output import Output

if TYPE_CHECKING:
    from patchkit.abi.layout_facts import Records

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("probe", short_help="Read struct layouts from a torch's headers.")
@click.argument("torch", type=_DIRECTORY, metavar="TORCH")
@click.option("--into", type=click.Path(dir_okay=False, path_type=Path), help="A file of facts to write them into.")
@click.option("--compiler", default="g++", show_default=True, help="The C++ compiler, a gcc.")
@click.option(
    "--string-abi",
    type=click.Choice(["new", "old"]),
    default="new",
    show_default=True,
    help="The std::string that its libraries were built with: old in torch's CUDA wheels up to 2.6.",
)
@click.option("--wheel", default="", metavar="FILE", help="The wheel that it was unpacked from, for the evidence.")
@click.option("--flash", type=_FILE, metavar="FLASH_H", help="Read Flash_fwd_params of this header instead.")
@click.option("--release", default="", metavar="NAME==VERSION", help="With --flash: what the header belongs to.")
@click.option("--source", default="", metavar="WORDS", help="With --flash: where it is from, for the evidence.")
@click.option("--variant", default="", metavar="WORDS", help="With --flash: which of several structs of the release.")
@click.option("--library", type=_FILE, help="With --flash: the release's library, whose stores have to fit.")
@json_option
def command(*, torch: Path, into: Path | None, compiler: str, output: Output, **options: Any) -> int:
    """Compile probes against the headers of TORCH, its package directory, and read its types from their DWARF.

    Nothing of torch is loaded or run; torch/include is all that is needed. A minute and half a gigabyte.

    \b
    Examples:
      patchkit abi probe site-packages/torch
      patchkit abi probe unpacked/torch --string-abi old --into layouts.json.z
      patchkit abi probe unpacked/torch --flash flash.h --release flash-attn==2.8.3
    """
    from patchkit.abi.layout_record import write_records

    output.progress("compiling the probe: about a minute")
    if options["flash"] is not None:
        release, records = _flash(torch, compiler, options)
    else:
        release, records = _torch(torch, compiler, options)
    if into is not None:
        write_records(into, {release: records})
    if output.machine:
        from patchkit.abi.layout_facts import record_document

        types = {name: record_document(record) for name, record in records.items()}
        output.document({"schema": 1, "release": release, "types": types})
        return 0
    output.line(f"{release}: {counted(len(records), 'type')}", style="head")
    for name, record in records.items():
        size = f"{counted(record.layout.size, 'byte ', 'bytes'):>11}" if record.layout is not None else " " * 11
        slots = f", {counted(len(record.vtable.slots), 'virtual function')}" if record.vtable is not None else ""
        output.line(f"  {size}  {name}{slots}")
    return 0


def _torch(torch: Path, compiler: str, options: Mapping[str, Any]) -> tuple[str, Records]:
    from patchkit.abi.layout_record import record_torch

    return record_torch(torch, compiler=compiler, cxx11_abi=options["string_abi"] == "new", wheel=options["wheel"])


def _flash(torch: Path, compiler: str, options: Mapping[str, Any]) -> tuple[str, Records]:
    from patchkit.abi.layout_record import FlashSource, record_flash

    if "==" not in options["release"]:
        raise UsageError("--flash goes with --release NAME==VERSION", why="the facts are stored under that name")
    flash = FlashSource(
        header=options["flash"],
        source=options["source"] or str(options["flash"]),
        library=options["library"],
        variant=options["variant"],
    )
    record = record_flash(flash, torch, compiler=compiler)
    return options["release"], {record.name: record}
