"""A mailbox of several commits in one patch: each is cut on top of the one before it, as `git am` takes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from patchkit.author import Letterhead, import_patch
from patchkit.diff.parse import parse_patch
from patchkit.tree import Kind
from tests.making import Files, World, diff, entries_of, lines, link

OTHERS: Files = {"b.py": lines(9, name="row"), "d/one.py": "one\n"}
TREE: Files = {"a.py": lines(20), **OTHERS}
AUTHOR = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
COMMITTER = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}

EDITED = lines(20).replace("line 3\n", "three\n")

HISTORIES: dict[str, tuple[Files, ...]] = {
    "edited, then renamed": ({**TREE, "a.py": EDITED}, {**OTHERS, "c.py": EDITED}),
    "renamed twice": ({**OTHERS, "c.py": lines(20)}, {**OTHERS, "e.py": lines(20)}),
    "edited twice in one place": ({**TREE, "a.py": EDITED}, {**TREE, "a.py": EDITED.replace("three\n", "3\n")}),
    "made, then edited": ({**TREE, "n.py": lines(8)}, {**TREE, "n.py": lines(8).replace("line 4\n", "four\n")}),
    "made, then deleted": ({**TREE, "n.py": lines(8), "a.py": EDITED}, {**TREE, "a.py": EDITED}),
    "deleted, then made": ({"a.py": TREE["a.py"]}, {**TREE, "b.py": "other\n"}),
    "a directory, then a file": (
        {"a.py": TREE["a.py"], "b.py": TREE["b.py"]},
        {"a.py": TREE["a.py"], "b.py": TREE["b.py"], "d": "x\n"},
    ),
    "a link, then a file": ({**TREE, "ln": link("a.py")}, {**TREE, "ln": "text\n"}, {**TREE, "ln": link("b.py")}),
}


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Files]:
    """Return the mailbox that git makes of commits on TREE, and the last of them."""
    states = HISTORIES[request.param]
    return mailbox(tmp_path_factory.mktemp("repository"), (TREE, *states)), states[-1]


def mailbox(root: Path, states: Sequence[Files]) -> bytes:
    _git(root, "init", "-q")
    for number, files in enumerate(states):
        _git(root, "rm", "-rfq", "--ignore-unmatch", ".")
        for path, entry in entries_of(files).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if entry.kind is Kind.SYMLINK:
                (root / path).symlink_to(os.fsdecode(entry.content))
            else:
                (root / path).write_bytes(entry.content)
        _git(root, "add", "-A")
        _git(root, "commit", "-qm", f"commit {number}")
    return _git(root, "format-patch", "--stdout", "-M", f"HEAD~{len(states) - 1}")


def _git(root: Path, *arguments: str) -> bytes:
    environment = {**os.environ, **AUTHOR, **COMMITTER}
    return subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True).stdout


def test_mailbox_gives_the_last_commit_and_is_taken_out_again(history: tuple[bytes, Files]) -> None:
    raw, last = history
    one = World(TREE)
    plan = one.put(one.ad_hoc(raw, strip=1))
    assert not plan.refused, plan.decisions
    assert dict(one.now.items()) == entries_of(last)
    assert not one.take(1).refused
    assert dict(one.now.items()) == entries_of(TREE)


def test_mailbox_reversed_goes_back_commit_by_commit(history: tuple[bytes, Files]) -> None:
    raw, last = history
    one = World(last)
    plan = one.put(one.ad_hoc(raw, strip=1, reverse=True))
    assert not plan.refused, plan.decisions
    assert dict(one.now.items()) == entries_of(TREE)


def test_mailbox_stays_when_a_layer_below_it_goes(history: tuple[bytes, Files]) -> None:
    raw, last = history
    below = lines(20).replace("line 12\n", "line 12\nmore\nand more\n")
    one = World(TREE)
    assert not one.put(one.ad_hoc(diff({"a.py": lines(20)}, {"a.py": below}), "below.diff", strip=1)).refused
    plan = one.put(one.ad_hoc(raw, "mails.patch", strip=1))
    assert not plan.refused, plan.decisions
    plan = one.take(1)
    assert not plan.refused, plan.decisions
    assert dict(one.now.items()) == entries_of(last)


def test_mail_above_a_file_that_is_left_out_stays_with_its_commit(tmp_path: Path) -> None:
    edited = {**TREE, "a.py": EDITED}
    moved: Files = {"c.py": EDITED, **OTHERS, "aaa.md": "text\n"}
    (tmp_path / "repository").mkdir()
    raw = mailbox(tmp_path / "repository", (TREE, edited, moved))
    patch = parse_patch(raw, source="two.patch")
    assert [file.new_name for file in patch.files] == ["b/a.py", "b/aaa.md", "b/c.py"]

    written = import_patch(
        tmp_path / "series",
        patch,
        Letterhead(subject="", author="a <a@example.org>", date=datetime(2026, 1, 2, tzinfo=timezone.utc)),
        slug="",
        package_only=True,
        name_paths=lambda file: (
            ("", "") if file.new_name == "b/aaa.md" else ((file.old_name or "")[2:], (file.new_name or "")[2:])
        ),
    )

    kept = parse_patch(written.path.read_bytes(), source="kept")
    assert [(file.new_name, file.commit) for file in kept.files] == [("b/a.py", 0), ("b/c.py", 1)]
    one = World(TREE)
    assert not one.put(one.ad_hoc(written.path.read_bytes(), strip=1)).refused
    assert one.contents["c.py"] == EDITED
