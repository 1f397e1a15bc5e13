"""`patchkit abi snapshot`: write down what is known about a wheel."""

from __future__ import annotations

import json
from pathlib import Path

import click

from patchkit.abi.snapshot import TORCH, Snapshot, read_snapshot, snapshot_document
from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.counting import counted
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("snapshot", short_help="Write down what is known about a wheel.")
@tree_options
@click.option("--wheel", type=_FILE, help="A .whl file; its shared objects are unpacked for a while.")
@click.option("-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it.")
@click.option(
    "--pack", type=click.Path(file_okay=False, path_type=Path), help="Put snapshots together into a directory of facts."
)
@click.argument("snapshots", nargs=-1, type=_FILE)
@json_option
def command(
    *,
    choice: Choice,
    wheel: Path | None,
    output_file: Path | None,
    pack: Path | None,
    snapshots: tuple[Path, ...],
    output: Output,
) -> int:
    """Write down what abi commands ask about a distribution: symbols, needs, floors, operators, requirements.

    --target may also be torch, beside the engines. Without -o it goes to stdout. With --pack DIR the named snapshots
    are written over the facts in DIR, as those in the package were made.

    \b
    Examples:
      patchkit abi snapshot --target vllm --python /opt/venv/bin/python -o vllm.json
      patchkit abi snapshot --wheel torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl -o torch-2.8.0.json
      patchkit abi snapshot --pack patchkit/abi/facts torch-2.8.0.json vllm.json
    """
    if pack is not None:
        return _pack(pack, snapshots, output)
    if snapshots:
        raise UsageError("snapshots are named with --pack", hint="--pack DIR says where to put them together")
    from patchkit.cli.abi_ground import write_file

    snapshot = _taken(choice, wheel, output)
    text = json.dumps(snapshot_document(snapshot), indent=1) + "\n"
    if output_file is None:
        output.raw(text.encode())
        return ExitStatus.DONE
    write_file(output_file, text)
    if output.machine:
        output.document({"schema": 1, "written": str(output_file), "wheel": snapshot.wheel.title})
    else:
        objects = counted(len(snapshot.wheel.objects), "shared object")
        output.line(f"{snapshot.wheel.title}: {objects}, written to {output_file}")
    return ExitStatus.DONE


def _taken(choice: Choice, wheel: Path | None, output: Output) -> Snapshot:
    from patchkit.abi.inspect_wheel import snapshot_of_wheel, take_snapshot
    from patchkit.cli.abi_ground import find_distribution

    if wheel is not None:
        return snapshot_of_wheel(wheel, tell=output.progress)
    found = find_distribution(choice, output)
    return take_snapshot(found.root, found.dist_info)


def _pack(directory: Path, snapshots: tuple[Path, ...], output: Output) -> int:
    from patchkit.abi.pack import pack_facts

    if not snapshots:
        raise UsageError("--pack needs snapshots to put together", hint="name files that `abi snapshot` wrote")
    releases = pack_facts(directory, (read_snapshot(path) for path in snapshots))
    if output.machine:
        output.document({"schema": 1, "facts": str(directory), "releases": list(releases)})
    else:
        output.line(f"{directory}: {counted(len(releases), 'release')}, torch among them: {TORCH in str(releases)}")
    return ExitStatus.DONE
