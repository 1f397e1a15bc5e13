"""`patchkit abi explain`: what a symbol or a pasted ImportError means."""

from __future__ import annotations

import click

from patchkit.abi.explain import Explanation
from patchkit.cli.options import json_option
from patchkit.cli.reading import read_stdin
from patchkit.counting import counted_of
from patchkit.errors import ExitStatus
from patchkit.output import Output


@click.command("explain", short_help="What a symbol or a pasted ImportError means, and which torch has it.")
@click.argument("text", nargs=-1, required=True)
@json_option
def command(*, text: tuple[str, ...], output: Output) -> int:
    """Say what a symbol is, which stored torch releases have it, which dropped it, and why it may be missing.

    TEXT is a mangled or demangled symbol, or the whole message of a failed import; - reads it from stdin, a log of up
    to 16 MiB. More is refused, since the answer may stand in what was not read.

    \b
    Examples:
      patchkit abi explain _ZN5torch3jit17parseSchemaOrNameERKSsb
      patchkit abi explain "ImportError: _C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"
      python -c "import vllm._C" 2>&1 | patchkit abi explain -
    """
    from patchkit.abi.explain import explain
    from patchkit.abi.snapshot import stored_facts

    given = read_stdin(output.progress) if text == ("-",) else " ".join(text)
    found = explain(
        given, stored_facts(), lambda done, whole: output.progress(f"explained {counted_of(done, whole, 'symbol')}")
    )
    if output.machine:
        output.document({"schema": 1, "explanations": [_document(one) for one in found]})
    else:
        for one in found:
            _show(one, output)
    return ExitStatus.DONE


def _show(one: Explanation, output: Output) -> None:
    output.line(one.words, style="head")
    if one.words != one.subject:
        output.line(f"  {one.subject}", style="dim")
    if one.where:
        libraries = f" ({', '.join(one.libraries)})" if one.libraries else ""
        output.line(f"  {one.where}{libraries}", style="good" if one.releases else "bad")
    for signature in one.others:
        output.line(f"  other signature: {signature.words}: torch {signature.where}")
    for meaning in one.meanings:
        output.line(f"  - {meaning}")
    for binary in one.needed_by:
        output.line(f"  needed by {binary}", style="dim")


def _document(one: Explanation) -> dict[str, object]:
    return {
        "kind": one.kind,
        "subject": one.subject,
        "words": one.words,
        "releases": list(one.releases),
        "where": one.where,
        "libraries": list(one.libraries),
        "other_signatures": [{"words": other.words, "where": other.where} for other in one.others],
        "meanings": list(one.meanings),
        "needed_by": list(one.needed_by),
    }
