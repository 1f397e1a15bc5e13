"""`patchkit series new`: an empty patch with a header."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.author import new_patch
from patchkit.catalogue import default_applies_to, series_directory
from patchkit.cli.ground import (
    free_work,
    make_letterhead,
    on_shipped_option,
    patches_option,
    typed_release,
    writing,
)
from patchkit.cli.options import Choice, command_output, names_a_tree, select_tree, tree_options
from patchkit.quoting import typed


@click.command("new", short_help="Add an empty patch with a header.")
@click.argument("slug")
@patches_option
@tree_options
@click.option("--subject", required=True, help="What the patch does, in one line.")
@click.option("--config", default="", metavar="SYMBOL", help="The toggle that gates it, with or without CONFIG_.")
@click.option(
    "--applies-to", default="", metavar="TARGET", help="The releases it is for: vllm>=0.6.3,<0.6.5; the tree's without."
)
@click.option("--author", default="", metavar="'NAME <MAIL>'", help="Who made it; git's user without.")
@on_shipped_option
def command(
    *,
    slug: str,
    patches: Path,
    choice: Choice,
    subject: str,
    config: str,
    applies_to: str,
    author: str,
    on_shipped: bool,
) -> int:
    """Add the next NNNN-SLUG.patch to a series: a header and no change yet. `series edit` and `refresh` fill it.

    The series is the directory of --patches, or the one in it. With --target or --root it is ENGINE/VERSION below it,
    and without --applies-to the patch is for that version. A series that begins with --on-shipped is cut on top of the
    shipped series, whose lines its patches may then edit.

    \b
    Examples:
      patchkit series new longer-timeout --patches ./patches --target vllm==0.6.3 \\
          --subject "Wait longer for the engine" --applies-to "vllm>=0.6.3,<0.6.5"
      patchkit series new version-suffix --patches ./patches --target vllm==0.6.3 --on-shipped \\
          --subject "Say in the version that it is our build"
    """
    output = command_output(acting=True)
    tree = select_tree(choice, output) if names_a_tree(choice) else None
    trailers = (("Config", config.removeprefix("CONFIG_")), ("Applies-To", applies_to or default_applies_to(tree)))
    letterhead = make_letterhead(subject, author, tuple(pair for pair in trailers if pair[1]))
    directory = series_directory(patches, tree)
    with writing(directory):
        written = new_patch(directory, slug, letterhead, on_shipped=on_shipped)
    output.line(f"new: {written.path}", style="good")
    edit = typed("patchkit", "series", "edit", written.name, "--patches", patches, "--work", free_work(written.name))
    if tree is not None:
        output.next_step(f"{edit} {typed_release(choice)}", beside=True)
    else:
        output.next_step(f"{edit} and the release to edit: --target, --python, --root or --artifact", beside=True)
    return 0
