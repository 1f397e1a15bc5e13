"""A series on top of the shipped one, as a user calls it: begun, edited, proved, applied, and what becomes of both."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.cli.main import run
from patchkit.resources import patches_directory
from patchkit.series import Series, find_series, read_series
from patchkit.target import TargetTree
from patchkit.toggle_lint import lint_toggles
from tests.blackbox.wheels import CHANGED, DIFF, MODULE, NEW_FILE, engine, wheel_file, wheel_tree, write_tree

HEADER = "Subject: Do it\n\nApplies-To: vllm==0.6.3\n---\n\n"
FAST = HEADER.replace("Applies-To", "Config: FAST\nApplies-To")
EARLIER_LINE = """\
diff --git a/vllm/engine.py b/vllm/engine.py
--- a/vllm/engine.py
+++ b/vllm/engine.py
@@ -1,3 +1,4 @@
+# fast
 \"\"\"Seen from outside.\"\"\"
 
 import os
"""  # noqa: W293 - a diff's empty context lines are a blank
SHIPPED = {"0001-rate.patch": HEADER + DIFF, "0002-fast.patch": FAST + EARLIER_LINE + NEW_FILE}
OURS = CHANGED.replace(b"RATE = 2\n", b"RATE = 2 + 5\n")


def _run(*arguments: object, status: int = 0) -> None:
    assert run([str(one) for one in arguments]) == status


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(patches_directory, "__defaults__", (tmp_path / "package",))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return wheel_file(tmp_path, "vllm", "0.6.3", engine())


@pytest.fixture
def shipped(tmp_path: Path, wheel: Path) -> Path:
    """The shipped series: a patch, and a gated one that moves the lines of the same file."""
    directory = tmp_path / "package" / "_resources" / "patches" / "vllm" / "0.6.3"
    directory.mkdir(parents=True)
    for name, text in SHIPPED.items():
        (directory / name).write_text(text)
    (directory / "series").write_text("\n".join(SHIPPED) + "\n")
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", wheel_tree("vllm", "0.6.3", engine()))


@pytest.fixture
def own(shipped: Path, wheel: Path) -> Path:
    """A series whose patch edits the line that the shipped one wrote, made by the commands and locked."""
    assert shipped.is_dir()
    return _begun(wheel, lambda text: text.replace("RATE = 2\n", "RATE = 2 + 5\n"))


def _begun(wheel: Path, edit: Callable[[str], str], *options: str, name: str = "own") -> Path:
    new = ("series", "new", "ours", "--patches", name, "--subject", "Ours", "--applies-to", "vllm==0.6.3")
    _run(*new, "--on-shipped", *options)
    _run("series", "edit", "0001-ours.patch", "--patches", name, "--work", f"{name}-work", "--artifact", wheel)
    place = Path(f"{name}-work/vllm/engine.py")
    place.write_text(edit(place.read_text()))
    _run("series", "refresh", "0001-ours.patch", "--patches", name, "--work", f"{name}-work")
    _run("series", "lock", "--patches", name, "--artifact", wheel)
    return Path(name)


def _engine(root: Path) -> bytes:
    return (root / "vllm/engine.py").read_bytes()


def _without(text: bytes) -> bytes:
    return text.removeprefix(b"# fast\n")


def test_work_directory_has_what_the_shipped_series_writes(own: Path) -> None:
    assert (own / "below").read_text() == "shipped\n"
    work = Path("own-work/vllm")
    assert (work / "engine.py").read_bytes() == b"# fast\n" + OURS
    assert (work / "extra.py").is_file()


def test_lint_of_toggles_reads_the_series_below_once(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "Kconfig").write_text('config OURS\n\tbool "Ours"\n')
    read: list[str] = []

    def counted(directory: Path, tree: TargetTree) -> Series | None:
        read.append(tree.version)
        return find_series(directory, tree)

    monkeypatch.setattr("patchkit.toggle_lint.find_series", counted)
    findings = lint_toggles(read_series(own, engine="vllm", version="0.6.3"))
    assert read == ["0.6.3"]
    assert [one.what for one in findings] == ["OURS gates no patch, and nothing reads it"]


def test_lock_names_the_series_below_and_the_files_as_it_leaves_them(own: Path, shipped: Path) -> None:
    (section,) = json.loads((own / "series.lock").read_bytes())["artifacts"]
    theirs = json.loads((shipped / "series.lock").read_bytes())

    assert section["below"] == {
        "series": "vllm/0.6.3",
        "patches": theirs["patches"],
        "files": {"vllm/engine.py": theirs["artifacts"][0]["files"]["vllm/engine.py"]["patched"]},
    }
    assert section["files"].keys() == {"vllm/engine.py"}


@pytest.mark.parametrize("fast", ["n", "y"])
def test_both_apply_and_each_comes_out_again(fast: str, own: Path, root: Path) -> None:
    pristine = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    asked = ("--root", root, "--patches", own, "--set", f"CONFIG_FAST={fast}")
    _run("plan", *asked)
    _run("apply", *asked)
    assert _engine(root) == (b"# fast\n" if fast == "y" else b"") + OURS
    _run("apply", *asked)
    _run("status", *asked[:4], "--require-applied")
    _run("apply", "--root", root, "--patches", own, "--no-shipped")
    _run("revert", "--root", root, "--layer", "2")
    assert _without(_engine(root)) == CHANGED
    _run("apply", *asked)
    _run("revert", "--root", root)
    left = {
        path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and ".patchkit" not in str(path)
    }
    assert left == pristine


def test_lint_is_content_and_takes_the_series_out_to_what_stands_below(
    own: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    _run("series", "lint", own, "--artifact", wheel)
    assert "nothing to mend" in capsys.readouterr().out


def test_shipped_layer_is_not_taken_from_below_lines_that_need_it(
    own: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("apply", "--root", root, "--patches", own)
    for what in (("--layer", "1"), ("0001-rate.patch",)):
        _run("revert", "--root", root, *what, status=1)
        assert "0001-ours.patch  refused" in capsys.readouterr().out
        assert _engine(root) == OURS
    _run("status", "--root", root, "--patches", own, "--require-applied")


def test_shipped_layer_comes_out_from_below_other_lines_and_goes_in_again(
    shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()
    ours = _begun(wheel, lambda text: text.replace("    return RATE", "    return 1 + RATE"))
    _run("apply", "--root", root, "--patches", ours)
    _run("revert", "--root", root, "--layer", "1")
    assert _engine(root) == MODULE.replace(b"return RATE", b"return 1 + RATE")
    _run("apply", "--root", root, "--patches", ours)
    assert _engine(root) == CHANGED.replace(b"return RATE", b"return 1 + RATE")
    capsys.readouterr()
    _run("status", "--root", root, "--patches", ours, "--require-applied")
    said = capsys.readouterr().out
    assert said.index("vllm/0.6.3 (shipped") < said.index("own (user")
    _run("revert", "--root", root, "--layer", "3", status=0)
    _run("apply", "--root", root, "--patches", ours)
    _run("revert", "--root", root)
    assert _engine(root) == MODULE


def test_series_that_is_moved_onto_the_shipped_one_is_moved_above_it(
    own: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = own.rename("free")
    (free / "below").unlink()
    (free / "0001-ours.patch").write_text(HEADER + DIFF.replace("engine.py", "layers/attention.py"))
    lock = ("series", "lock", "--patches", free, "--artifact", wheel)
    _run(*lock)
    _run("apply", "--root", root, "--patches", free, "--no-shipped")
    (free / "below").write_text("shipped\n")
    (free / "0001-ours.patch").write_text(
        HEADER + DIFF.replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 2 + 5")
    )
    _run(*lock)
    _run("apply", "--root", root, "--patches", free)
    assert _engine(root) == OURS
    capsys.readouterr()
    _run("status", "--root", root, "--patches", free, "--require-applied")
    said = capsys.readouterr().out
    assert said.index("vllm/0.6.3 (shipped") < said.index("free (user")
    assert (root / "vllm/layers/attention.py").read_bytes() == MODULE


def test_changed_series_below_is_status_4_with_its_patch(
    own: Path, shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shipped / "0001-rate.patch").write_text(HEADER + DIFF.replace("+RATE = 2", "+RATE = 7"))
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    for act in ("plan", "apply"):
        capsys.readouterr()
        _run(act, "--root", root, "--patches", own, status=4)
        said = capsys.readouterr().err
        assert "vllm/0.6.3 below it is not what it was locked on" in said
        assert "vllm/0.6.3: 0001-rate.patch is changed" in said
        assert "differs: vllm/engine.py" in said
    assert _engine(root) == MODULE
    _run("series", "lint", own, "--artifact", wheel, status=1)
    assert "0001-ours.patch:" in capsys.readouterr().out


def test_work_directory_from_another_series_below_is_status_4(
    own: Path, shipped: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gated = shipped / "0002-fast.patch"
    gated.write_text(gated.read_text().replace("+# fast", "+# faster"))
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    _run("series", "refresh", "0001-ours.patch", "--patches", own, "--work", "own-work", status=4)
    assert "the shipped series below changed" in capsys.readouterr().err
    _run("series", "lint", own, "--artifact", wheel, status=1)
    assert "vllm/engine.py is another below the series than the lock says" in capsys.readouterr().out


def test_series_below_that_changed_elsewhere_is_a_warning_of_lint(
    own: Path, shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = (SHIPPED["0002-fast.patch"]).replace("EXTRA = 1", "EXTRA = 9")
    (shipped / "0002-fast.patch").write_text(extra)
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    capsys.readouterr()
    _run("series", "lint", own, "--artifact", wheel)
    assert "warning: vllm-0.6.3-py3-none-any.whl: vllm/0.6.3 below changed since" in capsys.readouterr().out
    _run("apply", "--root", root, "--patches", own)
    assert _engine(root) == OURS


def test_patch_on_lines_of_a_gated_one_goes_where_that_goes(
    shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()

    def slower(text: str) -> str:
        return text.replace("# fast\n", "# fast, and ours\n")

    loose = _begun(wheel, slower, name="loose")
    _run("series", "lint", loose, "--artifact", wheel, status=1)
    assert "edits lines of 0002-fast.patch in vllm/engine.py, which CONFIG_FAST switches off" in capsys.readouterr().out
    _run("apply", "--root", root, "--patches", loose, status=1)

    gated = _begun(wheel, slower, "--config", "FAST", name="gated")
    _run("series", "lint", gated, "--artifact", wheel)
    _run("apply", "--root", root, "--patches", gated)
    assert _engine(root) == CHANGED
    _run("apply", "--root", root, "--patches", gated, "--set", "CONFIG_FAST=y")
    assert _engine(root) == b"# fast, and ours\n" + CHANGED


def test_gate_of_the_shipped_kconfig_is_known_beside_a_kconfig_of_its_own(
    shipped: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shipped.parent / "Kconfig").write_text('config FAST\n\tbool "fast"\n')
    gated = _begun(wheel, lambda text: text.replace("# fast\n", "# ours\n"), "--config", "FAST")
    (gated / "Kconfig").write_text('config OWN\n\tbool "own"\n')
    _run("series", "lint", gated, "--artifact", wheel)
    entry = gated / "0001-ours.patch"
    entry.write_text(entry.read_text().replace("Config: FAST", "Config: FASTER"))
    _run("series", "lint", gated, "--artifact", wheel, status=1)
    assert "`Config: FASTER`: the Kconfig does not define FASTER" in capsys.readouterr().out


@pytest.mark.parametrize("toggle", ["select", "guard"])
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_refusal_names_the_toggle_below_that_takes_the_lines_out(
    command: str, toggle: str, shipped: Path, wheel: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if toggle == "guard":
        gated = shipped / "0002-fast.patch"
        gated.write_text(SHIPPED[gated.name].replace("Config: FAST", "Config: FAST\nToggle: guard"))
        _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    series = _begun(wheel, lambda text: text.replace("# fast\n", "# fast, and ours\n"))
    capsys.readouterr()
    _run(command, "--root", root, "--patches", series, status=1)
    said = capsys.readouterr().err
    place = "0001-ours.patch:13 edits lines of 0002-fast.patch in vllm/engine.py"
    assert f"{place}, which CONFIG_FAST switches off: CONFIG_FAST=y, or gate it: `Config: FAST`" in said
    _run(command, "--root", root, "--patches", series, "--set", "CONFIG_FAST=y")
    assert "switches off" not in capsys.readouterr().err


@pytest.mark.parametrize("below", ["guard", "select"])
@pytest.mark.parametrize("on", ["y", "n"])
def test_refusal_of_a_guard_says_which_line_of_the_kconfig_lets_it_stand_on_lines_below(
    on: str, below: str, shipped: Path, wheel: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lower = shipped / "0002-fast.patch"
    lower.write_text(lower.read_text().replace("Config: FAST\n", f"Config: FAST\nToggle: {below}\n"))
    (shipped.parent / "Kconfig").write_text('config FAST\n\tbool "fast"\n')
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    series = _begun(wheel, lambda text: text.replace("\n\nimport os", "\n\nimport sys\nimport os"), "--config", "OWN")
    upper = series / "0001-ours.patch"
    upper.write_text(upper.read_text().replace("Config: OWN\n", "Config: OWN\nToggle: guard\n"))
    (series / "Kconfig").write_text('config OWN\n\tbool "own"\n')
    _run("series", "lock", "--patches", series, "--artifact", wheel)
    capsys.readouterr()
    options = ("--root", root, "--patches", series, "--set", f"CONFIG_OWN={on}")
    is_refused = (on, below) != ("n", "guard")
    _run("plan", *options, status=is_refused)
    captured = capsys.readouterr()
    place = "0001-ours.patch:16 has in its context, at `# fast`, what is made by 0002-fast.patch in vllm/engine.py"
    what = f"{place}, which CONFIG_FAST switches off: CONFIG_FAST=y, or let OWN `depends on FAST` in the Kconfig"
    assert (captured.out + captured.err).count(what) == is_refused
    (series / "Kconfig").write_text('config OWN\n\tbool "own"\n\tdepends on FAST\n')
    _run("series", "lock", "--patches", series, "--artifact", wheel)
    _run("plan", "--root", root, "--patches", series)
    _run("plan", *options[:-1], "CONFIG_OWN=y", "--set", "CONFIG_FAST=y")


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        (("--no-shipped",), "leave out --no-shipped: both are applied then"),
        (("--patch", "more.diff"), "apply both series without --patch and --no-shipped, then the diff"),
    ],
    ids=["no-shipped", "patch"],
)
def test_without_the_shipped_series_it_is_refused(
    option: tuple[str, ...], advice: str, own: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("more.diff").write_text(NEW_FILE.replace("extra.py", "more.py"))
    _run("apply", "--root", root, "--patches", own, *option, status=1)
    said = capsys.readouterr().err
    assert "stands on the shipped series, which is not in the tree and not asked for" in said
    assert said.endswith(f"next: {advice}\n")
    assert _engine(root) == MODULE


def test_release_without_a_shipped_series_is_status_4(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = own / "0001-ours.patch"
    wide.write_text(wide.read_text().replace("vllm==0.6.3", "vllm>=0.6.3,<0.7"))
    newer = wheel_file(tmp_path, "vllm", "0.6.4", engine(version="0.6.4"))
    for command in (("lock", "--patches", own), ("lint", own)):
        capsys.readouterr()
        _run("series", *command, "--artifact", newer, status=1 if "lint" in command else 4)
        captured = capsys.readouterr()
        assert "stands on the shipped series, and there is none for vllm 0.6.4" in captured.out + captured.err


def test_series_that_has_patches_does_not_begin_on_the_shipped_one(
    shipped: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()
    _run("series", "new", "first", "--patches", "own", "--subject", "First")
    Path("fix.diff").write_text(DIFF)
    for command in (("new", "second", "--subject", "Second"), ("import", "fix.diff", "--artifact", str(wheel))):
        _run("series", *command, "--patches", "own", "--on-shipped", status=1)
        assert "has patches, which are cut on the release" in capsys.readouterr().err
    assert not Path("own/below").exists()
    assert Path("own/series").read_text() == "0001-first.patch\n"


@pytest.mark.parametrize("text", ["", "vllm/0.6.3\n", "shipped shipped\n", "\0"])
def test_below_says_shipped_and_nothing_else(text: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "below").write_text(text)
    _run("series", "show", own, status=1)
    said = capsys.readouterr().err
    assert "own/below: does not say what stands below the series" in said
    assert "expected the word `shipped`" in said


def test_below_that_leads_out_of_the_series_is_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "below").rename("elsewhere")
    (own / "below").symlink_to("../elsewhere")
    _run("series", "show", own, status=1)
    assert "leaves the series through a symlink" in capsys.readouterr().err


def test_lock_is_stale_when_the_series_stands_elsewhere(
    own: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "below").unlink()
    _run("apply", "--root", root, "--patches", own, status=1)
    said = capsys.readouterr().err
    assert "the lock is stale" in said
    assert "differs for below" in said


def test_import_finds_names_that_only_the_shipped_series_has(shipped: Path, wheel: Path, root: Path) -> None:
    assert shipped.is_dir()
    Path("more.diff").write_text(
        "--- a/python/vllm/extra.py\n+++ b/python/vllm/extra.py\n@@ -1,2 +1,2 @@\n import os\n-EXTRA = 1\n+EXTRA = 2\n"
    )
    _run("series", "import", "more.diff", "--patches", "own", "--artifact", wheel, "--on-shipped")
    patch = Path("own/vllm/0.6.3/0001-more.patch")
    assert "--- a/vllm/extra.py\n" in patch.read_text()
    patch.write_text(patch.read_text().replace("Applies-To", "Config: FAST\nApplies-To"))
    _run("series", "lock", "--patches", "own", "--artifact", wheel)
    _run("apply", "--root", root, "--patches", "own", "--set", "CONFIG_FAST=y")
    assert (root / "vllm/extra.py").read_text() == "import os\nEXTRA = 2\n"


def test_unlocked_series_needs_a_proof_for_every_hunk_there_too(own: Path, root: Path) -> None:
    (own / "series.lock").unlink()
    _run("apply", "--root", root, "--patches", own, status=4)
    asked = ("apply", "--root", root, "--patches", own, "--unlocked")
    _run(*asked, status=1)  # a line higher than it says, and nothing tells whether that is right
    _run(*asked, "--set", "CONFIG_FAST=y")
    assert _engine(root) == b"# fast\n" + OURS


def test_base_that_is_given_is_the_release_below_the_shipped_series(own: Path, root: Path) -> None:
    shutil.copytree(root, "base")
    _run("apply", "--root", root, "--patches", own, "--base", "base", "--set", "CONFIG_FAST=y")
    assert _engine(root) == b"# fast\n" + OURS


def test_list_and_show_say_what_stands_below(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    _run("series", "show", own, "--json")
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (shown["on_shipped"], shown["stale"]) == (True, [])
    _run("series", "show", own)
    assert "stands on the shipped series" in capsys.readouterr().out
    _run("series", "list", "--patches", own)
    assert capsys.readouterr().out.count("stands on the shipped series") == 1


def test_lock_with_a_damaged_section_below_says_where(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = own / "series.lock"
    whole = json.loads(lock.read_bytes())
    for key, value in (("series", 1), ("files", []), ("patches", {"a": "b"}), ("more", 1)):
        document = json.loads(json.dumps(whole))
        document["artifacts"][0]["below"][key] = value
        lock.write_text(json.dumps(document))
        _run("series", "show", own, status=1)
        assert "is malformed" in capsys.readouterr().err


def test_refusal_of_a_series_that_was_cut_without_the_shipped_one_says_how_to_go_on(
    shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()
    Path("three.diff").write_text(DIFF.replace("+RATE = 2", "+RATE = 3"))
    _run("series", "import", "three.diff", "--patches", "free", "--artifact", wheel)
    _run("series", "lock", "--patches", "free", "--artifact", wheel)
    capsys.readouterr()
    _run("series", "lint", "free", "--artifact", wheel)
    said = capsys.readouterr().out
    assert "0001-three.patch: warning: does not hold above vllm/0.6.3: vllm/engine.py: 1 of 1 hunk refused" in said
    _run("apply", "--root", root)
    for act in ("plan", "apply"):
        capsys.readouterr()
        _run(act, "--root", root, "--patches", "free", status=1)
        assert (
            "warning: 0001-three.patch is cut on the release, and vllm/0.6.3 below it changes vllm/engine.py"
            in capsys.readouterr().err
        )
    Path("free/vllm/0.6.3/below").write_text("shipped\n")
    _run("series", "lint", "free", "--artifact", wheel, status=1)
    where = ("0001-three.patch", "--patches", "free", "--work", "anew")
    _run("series", "edit", *where, "--bare", "--artifact", wheel)
    text = Path("anew/vllm/engine.py").read_text()
    Path("anew/vllm/engine.py").write_text(text.replace("RATE = 2\n", "RATE = 3\n"))
    _run("series", "refresh", *where)
    _run("series", "lock", "--patches", "free", "--artifact", wheel)
    _run("apply", "--root", root, "--patches", "free")
    assert _engine(root) == MODULE.replace(b"RATE = 1\n", b"RATE = 3\n")


def test_wrong_strip_level_is_answered_with_the_one_that_fits(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.diff").write_text(DIFF)
    asked = ("plan", "--root", root, "--patch", "one.diff", "--strip", "0")
    _run(*asked, status=1)
    assert "warning: one.diff: without --strip 0 its files are found with -p1" in capsys.readouterr().err
    Path("one.diff").write_text(DIFF.replace("vllm/engine.py", "other/thing.py"))
    _run(*asked, status=1)
    assert "without --strip" not in capsys.readouterr().err


def test_lock_of_a_wheel_holds_in_a_checkout_that_has_the_package_elsewhere(tmp_path: Path) -> None:
    wheel = wheel_file(tmp_path, "sglang", "0.5.1", engine("sglang", "0.5.1"))
    directory = tmp_path / "package" / "_resources" / "patches" / "sglang" / "0.5.1"
    directory.mkdir(parents=True)
    header = HEADER.replace("vllm==0.6.3", "sglang==0.5.1")
    (directory / "0001-rate.patch").write_text(header + DIFF.replace("/vllm/", "/sglang/"))
    (directory / "series").write_text("0001-rate.patch\n")
    _run("series", "lock", "sglang/0.5.1", "--artifact", wheel)
    edit = DIFF.replace("/vllm/", "/sglang/").replace("-RATE = 1", "-RATE = 2").replace("+RATE = 2", "+RATE = 2 + 5")
    Path("ours.diff").write_text(edit)
    _run("series", "import", "ours.diff", "--patches", "own", "--artifact", wheel, "--on-shipped")
    _run("series", "lock", "--patches", "own", "--artifact", wheel)

    files = {f"python/{path}": content for path, content in engine("sglang", "0.5.1").items()}
    checkout = write_tree(tmp_path / "checkout", {**files, "python/sglang/version.py": b'__version__ = "0.5.1"\n'})
    (checkout / "python/pyproject.toml").write_text('[project]\nname = "sglang"\n')
    _run("apply", "--root", checkout, "--patches", "own")
    assert (checkout / "python/sglang/engine.py").read_bytes() == OURS
    _run("series", "lint", "own", "--root", checkout)
    _run("revert", "--root", checkout)
    assert (checkout / "python/sglang/engine.py").read_bytes() == MODULE


def test_diffs_below_and_above_move_it_and_come_out_in_any_order(own: Path, root: Path) -> None:
    Path("low.diff").write_text(EARLIER_LINE)
    Path("high.diff").write_text(
        "--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -7,4 +7,5 @@\n LIMIT = 3\n \n \n+# above\n def rate():\n"
    )
    _run("apply", "--root", root, "--patch", "low.diff")
    _run("apply", "--root", root, "--patches", own)
    _run("apply", "--root", root, "--patch", "high.diff")
    assert _engine(root) == b"# fast\n" + OURS.replace(b"def rate", b"# above\ndef rate")
    _run("revert", "--root", root, "low.diff")
    _run("status", "--root", root, "--patches", own, "--require-applied")
    assert _engine(root) == OURS.replace(b"def rate", b"# above\ndef rate")
    _run("revert", "--root", root, "--layer", "3")
    assert _engine(root) == CHANGED.replace(b"def rate", b"# above\ndef rate")
    _run("apply", "--root", root, "--patches", own)
    assert _engine(root) == OURS.replace(b"def rate", b"# above\ndef rate")
    _run("revert", "--root", root)
    assert _engine(root) == MODULE


def test_lint_tells_of_a_patch_that_a_toggle_of_the_shipped_series_would_meet(
    shipped: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()
    Path("first.diff").write_text(EARLIER_LINE.replace("# fast", "# ours"))
    Path("apart.diff").write_text(DIFF.replace("engine.py", "layers/attention.py"))
    for name in ("first.diff", "apart.diff"):
        _run("series", "import", name, "--patches", "free", "--artifact", wheel)
    _run("series", "lock", "--patches", "free", "--artifact", wheel)
    capsys.readouterr()
    _run("series", "lint", "free", "--artifact", wheel)
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "0001-first.patch: warning: does not hold above vllm/0.6.3 with its toggles on" in warnings[0]


def _for_later(own: Path) -> Path:
    """Let the patch admit the next release, and lock it again for the one it is cut on."""
    patch = own / "0001-ours.patch"
    patch.write_text(patch.read_text().replace("vllm==0.6.3", "vllm>=0.6.3,<0.7"))
    _run("series", "lock", "--patches", own, "--root", "tree")
    return write_tree(
        Path("newer"), wheel_tree("vllm", "0.6.4", engine(version="0.6.4", engine=b"# 0.6.4\n#\n" + MODULE))
    )


def test_next_release_without_a_shipped_series_is_status_4(
    own: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = _for_later(own)
    for unlocked in ((), ("--unlocked",)):
        _run("plan", "--root", newer, "--patches", own, *unlocked, status=4)
    assert "stands on the shipped series, and there is none for vllm 0.6.4" in capsys.readouterr().err
    assert root.is_dir()


def test_next_release_is_planned_with_the_base_that_both_series_were_cut_on(
    own: Path, shipped: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = _for_later(own)
    later = shipped.parent / "0.6.4"
    shutil.copytree(shipped, later)
    for name in SHIPPED:
        text = (later / name).read_text().replace("vllm==0.6.3", "vllm==0.6.4")
        text = text.replace("@@ -2,7 +2,7 @@", "@@ -4,7 +4,7 @@")
        text = text.replace("@@ -1,3 +1,4 @@\n+# fast\n", "@@ -1,5 +1,6 @@\n+# fast\n # 0.6.4\n #\n")
        (later / name).write_text(text)
    wheel = wheel_file(tmp_path / "later", "vllm", "0.6.4", engine(version="0.6.4", engine=b"# 0.6.4\n#\n" + MODULE))
    _run("series", "lock", "vllm/0.6.4", "--artifact", wheel)
    asked = ("--root", newer, "--patches", own, "--unlocked")
    _run("plan", *asked, status=1)
    _run("plan", *asked, "--base", root)
    _run("apply", *asked, "--base", root)
    assert _engine(newer) == b"# 0.6.4\n#\n" + OURS
    capsys.readouterr()
    _run("plan", *asked, "--base", newer, status=4)
    assert "none was cut against what --base names" in capsys.readouterr().err


@pytest.mark.parametrize("toggle", ["select", "guard"])
def test_patch_stands_on_lines_behind_a_guard_of_the_shipped_series(
    toggle: str, shipped: Path, root: Path, wheel: Path
) -> None:
    gated = shipped / "0002-fast.patch"
    gated.write_text(
        FAST.replace("Config: FAST", "Config: FAST\nToggle: guard")
        + "--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -9,2 +9,3 @@\n def rate():\n"
        + "-    return RATE * LIMIT\n+    fast = 2\n+    return RATE * LIMIT * fast\n"
    )
    (shipped.parent / "Kconfig").write_text('config FAST\n\tbool "Fast"\n')
    _run("series", "lock", "vllm/0.6.3", "--artifact", wheel)
    own = _begun(wheel, lambda text: text.replace("fast = 2", "fast = 3"), "--config", "FAST")
    patch = own / "0001-ours.patch"
    patch.write_text(patch.read_text().replace("Config: FAST", f"Config: FAST\nToggle: {toggle}"))
    _run("series", "lock", "--patches", own, "--artifact", wheel)
    _run("series", "lint", own, "--artifact", wheel)
    where = ("--root", root, "--patches", own)
    _run("apply", *where)
    _run("config", "set", "CONFIG_FAST=y", *where)
    _run("status", *where, "--require-applied")
    text = _engine(root)
    assert b"    fast = 3\n" in text
    assert b"fast = 2" not in text
    assert (b"if CONFIG_FAST:" in text) is (toggle == "guard")
    _run("revert", "--root", root)
    assert _engine(root) == MODULE


def test_patch_without_a_change_says_so_and_stands_in_a_stack_that_is_rendered_again(
    own: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("series", "new", "later", "--patches", own, "--subject", "Later")
    _run("series", "lock", "--patches", own, "--artifact", wheel)
    where = ("--root", root, "--patches", own)
    capsys.readouterr()
    _run("apply", *where)
    assert "0002-later.patch  nothing here: it has no change yet" in capsys.readouterr().out
    _run("apply", *where)
    assert capsys.readouterr().out.endswith("nothing to do\n")
    _run("apply", *where, "--set", "CONFIG_FAST=y")
    assert _engine(root) == b"# fast\n" + OURS
    _run("revert", "--root", root, "0001-ours.patch")
    assert _engine(root) == b"# fast\n" + CHANGED
    _run("revert", "--root", root)
    assert _engine(root) == MODULE


def test_refresh_takes_its_release_from_a_patched_tree_unless_somebody_edited_that(
    own: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("0001-ours.patch", "--patches", own, "--work", "again")
    _run("apply", "--root", root, "--patches", own)
    _run("series", "edit", *where, "--root", root)
    assert Path("again/vllm/engine.py").read_bytes() == b"# fast\n" + OURS
    (root / "vllm/engine.py").write_bytes(OURS + b"EDITED = 1\n")
    Path("again/vllm/engine.py").write_bytes(b"# fast\n" + OURS.replace(b"2 + 5", b"2 + 6"))
    _run("series", "refresh", *where, status=5)
    assert "changed: vllm/engine.py" in capsys.readouterr().err
    (root / "vllm/engine.py").write_bytes(OURS)
    _run("series", "refresh", *where)
    _run("apply", "--root", root, "--patches", own, status=1)
    assert "the lock is stale" in capsys.readouterr().err
    _run("series", "lock", "--patches", own, "--root", root)
    _run("apply", "--root", root, "--patches", own)
    assert _engine(root) == OURS.replace(b"2 + 5", b"2 + 6")
    _run("revert", "--root", root)
    assert _engine(root) == MODULE


@pytest.mark.parametrize(
    ("gone", "asked"),
    [
        ("0001-one.patch", ("--patches", "own")),
        ("0001-one.patch", ()),
        ("0001-rate.patch", ("--patches", "own", "--no-shipped")),
    ],
    ids=["named", "own not named", "shipped not named"],
)
def test_what_status_says_to_type_brings_back_a_patch_that_was_taken_out(
    gone: str, asked: tuple[str, ...], shipped: Path, root: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipped.is_dir()
    _write_free(Path("own"), wheel)
    _run("apply", "--root", root, "--patches", "own")
    _run("revert", "--root", root, gone)
    capsys.readouterr()
    _run("status", "--root", root, "--require-applied", *asked, status=1)
    (advice,) = re.findall(r"next: `patchkit (.*)`(.*)\n", capsys.readouterr().out)
    assert advice[1] == ("" if asked else ", DIR for the directory of own")
    _run(*shlex.split(advice[0].replace("DIR", "own")))
    _run("status", "--root", root, "--require-applied", "--patches", "own")


def _write_free(directory: Path, wheel: Path) -> None:
    """Write a series of two patches that needs nothing of the shipped one."""
    directory.mkdir()
    (directory / "0001-one.patch").write_text(HEADER + DIFF.replace("engine.py", "layers/attention.py"))
    (directory / "0002-two.patch").write_text(HEADER + NEW_FILE.replace("extra.py", "more.py"))
    (directory / "series").write_text("0001-one.patch\n0002-two.patch\n")
    _run("series", "lock", "--patches", directory, "--artifact", wheel)
