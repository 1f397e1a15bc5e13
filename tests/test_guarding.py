"""Guard patches through the whole path: both variants in the tree, a flip is two lines, revert gives the bytes back."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from patchkit.cli.main import run
from tests.blackbox.command import difference, snapshot
from tests.blackbox.wheels import engine, record_of, recorded, wheel_tree, write_tree
from tests.making import diff, header

KCONFIG = """\
config FAST
	bool "Fast path"
config FASTER
	bool "Faster still"
	depends on FAST
config OTHER
	bool "Something else"
config PLAIN
	bool "Switched by select"
config TEXT
	string "A text"
"""
BODY = "def step(x):\n    a = x + 1\n    b = a * 2\n    return b\n\n\ndef name():\n    return 'pristine'\n\n\n"
BODY += "def tail(y):\n" + "".join(f"    y += {n}\n" for n in range(12)) + "    return y\n"
FILES = {
    **{path: content.decode() for path, content in engine().items()},
    "vllm/step.py": f'"""Steps."""\nfrom __future__ import annotations\n\n{BODY}',
    "vllm/other.py": "VALUE = 1\n",
    "vllm/kernel.cu": "int a;\nint b;\nint c;\n",
    "vllm/text.json": '{"a": 1}\n',
}


def changed(files: dict[str, str], **changes: tuple[str, str]) -> dict[str, str]:
    names = {"step": "vllm/step.py", "other": "vllm/other.py", "kernel": "vllm/kernel.cu", "text": "vllm/text.json"}
    return {
        **files,
        **{names[name]: files[names[name]].replace(old, new) for name, (old, new) in changes.items()},
    }


FAST = {
    **changed(FILES, step=("x + 1", "x + 10"), kernel=("int b;", "int bb;")),
    "vllm/fast.py": "FAST = 1 if CONFIG_FAST else 0\n",
}
FASTER = changed(FAST, step=("x + 10", "x + 100"))
OTHER = changed(FASTER, step=("'pristine'", "'other'"), other=("1", "2"))
PLAIN = changed(OTHER, other=("2\n", "2\nMORE = 3\n"))


def told(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


class Site:
    """A tree and a directory of patches; guard patches unless said otherwise."""

    def __init__(self, scratch: Path) -> None:
        self.root = write_tree(
            scratch / "site", wheel_tree("vllm", "0.6.3", {name: text.encode() for name, text in FILES.items()})
        )
        self.patches = scratch / "own"
        self.series = self.patches / "vllm" / "0.6.3"
        self.series.mkdir(parents=True)
        (self.patches / "vllm" / "Kconfig").write_text(KCONFIG)
        self.names: list[str] = []
        self.pristine = snapshot(self.root)

    def add(self, gate: str, old: dict[str, str], new: dict[str, str], toggle: str = "guard") -> None:
        name = f"{len(self.names) + 1:04d}-{gate.lower() or 'always'}.patch"
        trailers = {"Config": gate, "Toggle": toggle} if gate else {}
        (self.series / name).write_bytes(header(gate or "always", **trailers) + diff(old, new))
        self.names.append(name)
        (self.series / "series").write_text("".join(f"{one}\n" for one in self.names))

    def patchkit(self, *arguments: str) -> int:
        where = ["--root", str(self.root), "--target", "vllm", "--no-shipped"]
        return run([*arguments, *where, "--patches", str(self.patches)])

    def apply(self, *settings: str) -> int:
        options = [word for setting in settings for word in ("--set", setting)]
        return self.patchkit("apply", "--unlocked", *options)

    def read(self, name: str) -> str:
        return (self.root / "vllm" / name).read_text()

    def ask(self, asked: str) -> str:
        """Evaluate an expression in a fresh interpreter that imports from the tree."""
        command = [sys.executable, "-B", "-c", f"from vllm import step, other; print(({asked}))"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def full(site: Site) -> Site:
    site.add("FAST", FILES, FAST)
    site.add("FASTER", FAST, FASTER)
    site.add("OTHER", FASTER, OTHER)
    site.add("PLAIN", OTHER, PLAIN, toggle="select")
    return site


def test_both_variants_stand_in_the_tree_and_the_constants_choose(full: Site) -> None:
    assert full.apply() == 0
    text = full.read("step.py")
    assert "if CONFIG_FAST:\n        if CONFIG_FASTER:\n            a = x + 100\n" in text
    assert text.count("from vllm._patchkit.autoconf import CONFIG_FAST, CONFIG_FASTER, CONFIG_OTHER  # patchkit: ") == 1
    assert full.ask("step.step(0), step.name(), other.VALUE") == "(2, 'pristine', 1)"
    assert record_of(full.root) == recorded(full.root)

    for settings, expected in (
        (("FAST=y",), "(20, 'pristine', 1)"),
        (("FASTER=y",), "(200, 'pristine', 1)"),
        (("OTHER=y",), "(200, 'other', 2)"),
        (("FASTER=n", "FAST=n"), "(2, 'other', 2)"),
    ):
        assert full.patchkit("config", "set", *(f"CONFIG_{one}" for one in settings)) == 0
        assert full.ask("step.step(0), step.name(), other.VALUE") == expected

    assert run(["status", "--root", str(full.root), "--target", "vllm"]) == 0
    assert run(["revert", "--root", str(full.root), "--target", "vllm"]) == 0
    assert difference(snapshot(full.root), full.pristine) == []


def test_off_behind_a_guard_is_told_from_not_in_the_files(full: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert full.apply() == 0
    plan = told(capsys)
    guarded = "CONFIG_OTHER is not set; its guards stand in the files"
    assert f"0003-other.patch  guarded, off: {guarded}\n" in plan
    assert "0004-plain.patch  disabled: CONFIG_PLAIN is not set\n" in plan
    assert run(["status", "--root", str(full.root), "--target", "vllm"]) == 0
    status = told(capsys)
    assert f"0003-other.patch [CONFIG_OTHER]  off: {guarded}\n" in status
    assert "0004-plain.patch [CONFIG_PLAIN]  left out: CONFIG_PLAIN is not set\n" in status
    assert full.patchkit("config", "show") == 0
    shown = told(capsys)
    assert "    gates 0003-other.patch, by guards that stand in the files\n" in shown
    assert "    gates 0004-plain.patch\n" in shown
    assert full.patchkit("config", "show", "--json") == 0
    rows = {row["symbol"]: row["guards"] for row in json.loads(told(capsys))["symbols"]}
    assert (rows["OTHER"], rows["PLAIN"]) == (["0003-other.patch"], [])
    assert full.patchkit("status", "--unlocked", "--require-applied") == 0


def test_a_flip_changes_the_constants_and_one_line_of_each_guarded_file(full: Site) -> None:
    assert full.apply() == 0
    before = snapshot(full.root)
    texts = {name: full.read(name).splitlines() for name in ("step.py", "other.py", "kernel.cu")}
    assert full.patchkit("config", "set", "CONFIG_OTHER=y") == 0
    changed_files = {path for path in difference(snapshot(full.root), before) if ".patchkit" not in path}
    assert {path.split(":")[0].split()[-1] for path in changed_files} >= {"vllm/step.py", "vllm/other.py"}
    for name, was in texts.items():
        now = full.read(name).splitlines()
        different = [line for line, old in zip(now, was, strict=True) if line != old]
        assert all("# patchkit: " in line for line in different)
        assert len(different) == (name != "kernel.cu")


def test_native_sources_hold_both_variants_and_include_the_constants(full: Site) -> None:
    assert full.apply() == 0
    text = full.read("kernel.cu")
    assert text.startswith('#include "../.patchkit/vllm/autoconf.h"\n')
    assert "#if CONFIG_FAST\nint bb;\n#else\nint b;\n#endif\n" in text
    if shutil.which("g++"):
        command = ["g++", "-E", "-P", "-x", "c++", str(full.root / "vllm" / "kernel.cu")]
        assert "int b;" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert full.patchkit("config", "set", "CONFIG_FAST=y") == 0
        assert "int bb;" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_file_that_a_guard_patch_brings_is_there_in_any_case(full: Site) -> None:
    assert full.apply() == 0
    assert full.ask("__import__('vllm.fast').fast.FAST") == "0"
    assert full.patchkit("config", "set", "CONFIG_FAST=y") == 0
    assert full.ask("__import__('vllm.fast').fast.FAST") == "1"


def test_a_select_patch_beside_a_guard_patch_comes_and_goes(full: Site) -> None:
    site = full
    (site.series / "0004-plain.patch").write_bytes(
        header("plain", Config="PLAIN", Toggle="select") + diff(OTHER, changed(OTHER, step=("return y", "return -y")))
    )
    assert site.apply("CONFIG_PLAIN=y", "CONFIG_OTHER=y") == 0
    assert site.ask("step.tail(0), step.name()") == "(-66, 'other')"
    assert site.patchkit("config", "set", "CONFIG_PLAIN=n") == 0
    assert site.ask("step.tail(0), step.name()") == "(66, 'other')"


def test_a_select_patch_beside_lines_of_a_guard_patch_settles_them(
    full: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "other.VALUE, getattr(other, 'MORE', 0), step.name()"
    assert full.apply("CONFIG_PLAIN=y", "CONFIG_OTHER=y") == 0  # it edits lines beside those of OTHER
    assert full.ask(value) == "(2, 3, 'other')"
    assert "CONFIG_OTHER" not in full.read("other.py")
    assert "if CONFIG_OTHER:" in full.read("step.py")
    capsys.readouterr()
    before = snapshot(full.root)
    assert full.patchkit("config", "set", "CONFIG_OTHER=n") == 1
    assert "0004-plain.patch" in told(capsys)
    assert difference(snapshot(full.root), before) == []
    for settings, expected in (
        (("CONFIG_PLAIN=n",), "(2, 0, 'other')"),
        (("CONFIG_OTHER=n",), "(1, 0, 'pristine')"),
        (("CONFIG_OTHER=y", "CONFIG_PLAIN=y"), "(2, 3, 'other')"),
        (("CONFIG_OTHER=n", "CONFIG_PLAIN=n"), "(1, 0, 'pristine')"),
    ):
        assert full.patchkit("config", "set", *settings) == 0
        assert full.ask(value) == expected
    assert run(["revert", "--root", str(full.root), "--target", "vllm"]) == 0
    assert difference(snapshot(full.root), full.pristine) == []


def test_a_guard_patch_on_lines_of_a_select_patch_comes_with_it(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add("FAST", FILES, FAST, toggle="select")
    site.add("FASTER", FAST, FASTER)
    assert site.apply() == 0
    assert "0002-faster.patch  disabled: CONFIG_FASTER is not set\n" in told(capsys)
    assert "CONFIG_" not in site.read("step.py")
    for settings, expected, words in (
        (("CONFIG_FAST=y",), "20", "off: CONFIG_FASTER is not set; its guards stand in the files"),
        (("CONFIG_FASTER=y",), "200", "0002-faster.patch [CONFIG_FASTER]\n"),
        (("CONFIG_FAST=n", "CONFIG_FASTER=n"), "2", "left out: CONFIG_FASTER is not set\n"),
    ):
        assert site.patchkit("config", "set", *settings) == 0
        assert site.ask("step.step(0)") == expected
        capsys.readouterr()
        assert run(["status", "--root", str(site.root), "--target", "vllm"]) == 0
        assert words in told(capsys)


def test_where_too_many_toggles_meet_a_flip_renders_the_file_anew(site: Site) -> None:
    def variant(on: int) -> dict[str, str]:
        rows = "".join(f"    {n},\n" if n % 8 or n >= 8 * on else f"    {n + 100},\n" for n in range(48))
        return changed(FILES, other=("VALUE = 1\n", f"VALUE = [\n{rows}]\n"))

    (site.root / "vllm" / "other.py").write_text(variant(0)["vllm/other.py"])
    (site.patches / "vllm" / "Kconfig").write_text("".join(f'config G{n}\n\tbool "G"\n' for n in range(6)))
    for n in range(6):
        site.add(f"G{n}", variant(n), variant(n + 1))
    assert site.apply("CONFIG_G2=y") == 0
    for settings, there in (
        ((), [116]),
        (("CONFIG_G0=y",), [100, 116]),
        (("CONFIG_G2=n", "CONFIG_G5=y"), [100, 140]),
    ):
        assert not settings or site.patchkit("config", "set", *settings) == 0
        assert site.ask("[n for n in other.VALUE if n >= 100]") == str(there)


def test_lines_of_another_guard_patch_without_a_dependency_are_refused(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("FAST", FILES, FAST)
    site.add("OTHER", FAST, FASTER)
    assert site.apply() == 1
    assert "CONFIG_OTHER edits lines of CONFIG_FAST: add `depends on FAST`" in told(capsys)
    assert difference(snapshot(site.root), site.pristine) == []


BY_SELECT = {
    "json": (changed(FILES, text=("1", "2")), "vllm/text.json: {}: no guard can stand in it"),
    "deleted": (
        {path: text for path, text in FILES.items() if path != "vllm/other.py"},
        "other.py: {}: 0001-fast.patch",
    ),
    "future": (
        changed(FILES, other=("VALUE", "from __future__ import annotations\nVALUE")),
        "vllm/other.py:1: {}: a from __future__ import cannot be switched",
    ),
    "binds the constant": (changed(FILES, other=("VALUE", "CONFIG_FAST = 1\nVALUE")), "it binds CONFIG_FAST itself"),
}


@pytest.mark.parametrize(("new", "said"), BY_SELECT.values(), ids=BY_SELECT)
def test_what_cannot_be_guarded_is_rendered_for_the_present_values_and_said(
    new: dict[str, str], said: str, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with_guards = changed(new, step=("x + 1", "x + 10"))
    site.add("FAST", FILES, with_guards)
    assert site.apply() == 0
    warned = said.format("CONFIG_FAST is switched as by `Toggle: select`")
    plain = {path: text.encode() for path, text in FILES.items()}
    on = {path: text.encode() for path, text in with_guards.items()}
    for setting, there in (("n", plain), ("y", on), ("n", plain)):
        assert site.patchkit("config", "set", f"CONFIG_FAST={setting}") == 0
        words = told(capsys)
        assert warned in words
        for name in ("vllm/other.py", "vllm/text.json"):
            path = site.root / name
            assert (path.read_bytes() if path.exists() else None) == there.get(name)
        assert "if CONFIG_FAST:" in site.read("step.py")
    assert run(["status", "--root", str(site.root), "--target", "vllm"]) == 0
    assert "its guards stand in the files, but not everywhere in vllm/" in told(capsys)
    assert run(["revert", "--root", str(site.root), "--target", "vllm"]) == 0
    assert difference(snapshot(site.root), site.pristine) == []


def test_a_patch_without_a_single_guard_is_not_called_guarded(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add("FAST", FILES, changed(FILES, text=("1", "2")))
    assert site.apply() == 0
    assert "0001-fast.patch  disabled: CONFIG_FAST is not set\n" in told(capsys)
    assert site.patchkit("apply", "--unlocked") == 0
    words = told(capsys)
    assert "0001-fast.patch  disabled: CONFIG_FAST is not set\n" in words
    assert "nothing to do" in words


def test_toggles_that_crowd_a_region_flip_in_any_order_to_what_plain_patching_makes(site: Site) -> None:
    rows = [f"    {n},\n" for n in range(80)]

    def text(on: Collection[int]) -> str:
        own = {10 * n + k: f"    {100 + 10 * n + k},\n" for n in on for k in range(1 + n % 3)}
        lines = [own.get(place, row) for place, row in enumerate(rows)]
        if 7 in on:  # it stands on lines of 6
            lines[60] = "    777,\n"
        return f"VALUE = [\n{''.join(lines)}]\n\n\ndef asked():\n    return {1 if 3 in on else 0}\n"

    files = [changed(FILES, other=("VALUE = 1\n", text(range(count)))) for count in range(9)]
    (site.root / "vllm" / "other.py").write_text(files[0]["vllm/other.py"])
    kconfig = "".join(f'config G{n}\n\tbool "G"\n' for n in range(8))
    (site.patches / "vllm" / "Kconfig").write_text(kconfig + "\tdepends on G6\n")
    for n in range(8):
        site.add(f"G{n}", files[n], files[n + 1])
    pristine = snapshot(site.root)
    assert site.apply() == 0
    assert site.read("other.py").count("if CONFIG_G3") == 1  # beside the region there is room for guards
    draw, on = random.Random(4), set[int]()  # noqa: S311 -- which toggles to flip
    for _ in range(4):
        flipped = set(draw.sample(range(8), draw.randrange(1, 4)))
        wanted = (on ^ flipped) - ({7} if 6 not in on ^ flipped else set())
        settings = [f"CONFIG_G{n}={'y' if n in wanted else 'n'}" for n in sorted(on ^ wanted, reverse=True)]
        assert not settings or site.patchkit("config", "set", *settings) == 0
        on = wanted
        made: dict[str, object] = {}
        exec(text(on), made)  # noqa: S102 -- code of this file
        assert site.ask("other.VALUE, other.asked()") == str((made["VALUE"], 1 if 3 in on else 0))
    assert site.patchkit("config", "set", *(f"CONFIG_G{n}=n" for n in reversed(range(8)))) == 0
    assert site.ask("other.VALUE, other.asked()") == str((list(range(80)), 0))
    assert run(["revert", "--root", str(site.root), "--target", "vllm"]) == 0
    assert difference(snapshot(site.root), pristine) == []


def test_without_a_kconfig_a_toggle_takes_y_and_n_only(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.patches / "vllm" / "Kconfig").unlink()
    site.add("FAST", FILES, FAST, toggle="select")
    (tmp_path / "x.config").write_text("CONFIG_FAST=yes\n")
    assert site.apply("CONFIG_FAST=5") == 1
    assert "--set: CONFIG_FAST=5: not a value of this toggle" in told(capsys)
    assert site.patchkit("apply", "--unlocked", "--config", str(tmp_path / "x.config")) == 1
    assert "x.config:1: CONFIG_FAST=yes: not a value of this toggle" in told(capsys)
    assert difference(snapshot(site.root), site.pristine) == []


def test_guard_without_a_kconfig_is_switched_by_y_and_n(site: Site) -> None:
    (site.patches / "vllm" / "Kconfig").unlink()
    site.add("FAST", FILES, FAST)
    assert site.apply() == 0
    assert "if CONFIG_FAST:" in site.read("step.py")
    off = site.ask("step.step(0)")
    assert site.apply("CONFIG_FAST=y") == 0
    assert site.ask("step.step(0)") != off
    assert site.apply("CONFIG_FAST=n") == 0
    assert site.ask("step.step(0)") == off


def test_an_ad_hoc_diff_above_guards_is_in_every_variant_and_comes_out_again(full: Site, tmp_path: Path) -> None:
    assert full.apply() == 0
    guarded = snapshot(full.root)
    patch = tmp_path / "more.diff"
    patch.write_bytes(diff(FILES, changed(FILES, step=("return y", "return -y"))))
    target = ["--root", str(full.root), "--target", "vllm"]
    assert run(["apply", *target, "--patch", str(patch)]) == 0
    assert full.ask("step.tail(0)") == "-66"
    assert "if CONFIG_FAST:" in full.read("step.py")
    assert run(["revert", *target, "more.diff"]) == 0
    left = [path for path in difference(snapshot(full.root), guarded) if ".patchkit/" not in path]
    assert left == []


def test_applying_twice_is_nothing_to_do(full: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert full.apply("CONFIG_FAST=y") == 0
    before = snapshot(full.root)
    capsys.readouterr()
    assert full.patchkit("apply", "--unlocked", "--json") == 0
    assert difference(snapshot(full.root), before) == []
    assert json.loads(capsys.readouterr().out)["schema"] == 1


def test_a_flip_makes_no_guard_anew(full: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.config import guard_files

    assert full.apply() == 0
    with monkeypatch.context() as patched:
        patched.setattr(guard_files, "guard_python", None)
        assert full.patchkit("config", "set", "CONFIG_FAST=y") == 0
    assert full.ask("step.step(0)") == "20"
    flipped = snapshot(full.root)
    (full.root / ".patchkit" / "vllm" / "receipt.json").write_bytes(
        (full.root / ".patchkit" / "vllm" / "receipt.json").read_bytes().replace(b'"guards"', b'"unread"')
    )
    assert full.patchkit("config", "set", "CONFIG_FAST=n") == 0  # made anew, as the receipt names no guards
    assert full.patchkit("config", "set", "CONFIG_FAST=y") == 0
    left = [path for path in difference(snapshot(full.root), flipped) if ".patchkit/" not in path]
    assert left == []


BESIDE = "".join(f"row {number}\n" for number in range(20))


def beside(on: Collection[str]) -> dict[str, str]:
    """Return the files with patches on whose hunks stand in each other's context."""
    text, more = FILES["vllm/step.py"], BESIDE
    for gate, *pairs in (
        ("FAST", ("    y += 3\n", "    y += 30\n    y += 31\n"), ("row 5\n", "five\nfive and more\n")),
        ("OTHER", ("    y += 5\n", "    y += 50\n"), ("row 7\n", "seven\n")),
        ("FASTER", ("    y += 7\n", ""), ("row 9\n", "nine\n")),
    ):
        if gate in on:
            text, more = (whole.replace(*pair) for whole, pair in zip((text, more), pairs, strict=True))
    return {**FILES, "vllm/step.py": text, "vllm/text.json": more}


def add_beside(site: Site, toggle: str = "guard") -> None:
    (site.patches / "vllm" / "Kconfig").write_text(KCONFIG.replace("\tdepends on FAST\n", ""))
    (site.root / "vllm" / "text.json").write_text(BESIDE)
    for gate, before in (("FAST", ()), ("OTHER", ("FAST",)), ("FASTER", ("FAST", "OTHER"))):
        site.add(gate, beside(before), beside((*before, gate)), toggle=toggle)


def test_guard_patches_in_the_context_of_each_other_are_switched_one_by_one(site: Site, tmp_path: Path) -> None:
    """They touch no line of each other; also where no guard can stand, and through layers that come and go."""
    add_beside(site)
    pristine = snapshot(site.root)
    target = ["--root", str(site.root), "--target", "vllm"]
    assert run(["series", "lint", str(site.patches), "--root", str(site.root)]) == 0
    assert site.apply() == 0
    on: set[str] = set()
    patch = tmp_path / "more.diff"
    patch.write_bytes(diff(FILES, changed(FILES, other=("1", "2"))))
    for gate in ("OTHER", "FASTER", "FAST", "OTHER", "FAST", "OTHER", "FASTER", "FAST"):
        on ^= {gate}
        assert site.patchkit("config", "set", f"CONFIG_{gate}={'y' if gate in on else 'n'}") == 0
        for step in (["apply", *target, "--patch", str(patch)], ["revert", *target, "more.diff"], ()):
            made: dict[str, object] = {}
            exec(beside(on)["vllm/step.py"] + "made = tail(0)\n", made)  # noqa: S102 -- code of this file
            assert site.ask("step.tail(0)") == str(made["made"])
            assert site.read("text.json") == beside(on)["vllm/text.json"]
            assert not step or run(step) == 0
    assert run(["revert", *target]) == 0
    assert difference(snapshot(site.root), pristine) == []


def put_layer_below(site: Site, tmp_path: Path) -> list[str]:
    """Apply lower.diff, below two guard patches that stand in the context of each other; return the tree's options."""

    def steps(*on: str) -> dict[str, str]:
        return {**FILES, "vllm/step.py": beside(on)["vllm/step.py"]}

    site.add("FAST", steps(), steps("FAST"))
    site.add("OTHER", steps("FAST"), steps("FAST", "OTHER"))
    target = ["--root", str(site.root), "--target", "vllm"]
    assert run(["series", "lock", "--patches", str(site.patches), *target]) == 0
    lower = tmp_path / "lower.diff"
    lower.write_bytes(diff(FILES, changed(FILES, step=("def step(x):\n", "def step(x):\n    # one\n    # two\n"))))
    assert run(["apply", *target, "--patch", str(lower)]) == 0
    return target


def test_a_layer_below_guard_patches_in_the_context_of_each_other_comes_out(site: Site, tmp_path: Path) -> None:
    (site.patches / "vllm" / "Kconfig").write_text(KCONFIG)
    target = put_layer_below(site, tmp_path)
    assert site.patchkit("apply", "--set", "CONFIG_OTHER=y") == 0
    assert site.ask("step.tail(0)") == "111"
    assert run(["revert", *target, "lower.diff"]) == 0
    assert "# two" not in site.read("step.py")
    for setting, value in (("CONFIG_FAST=y", "169"), ("CONFIG_OTHER=n", "124"), ("CONFIG_FAST=n", "66")):
        assert site.patchkit("config", "set", setting) == 0
        assert site.ask("step.tail(0)") == value
    assert run(["revert", *target]) == 0
    assert difference(snapshot(site.root), site.pristine) == []


@pytest.mark.parametrize("on", [("FAST", "OTHER", "FASTER"), ("FAST", "FASTER"), ("FAST",)], ids=" ".join)
def test_a_guard_patch_in_the_context_of_others_is_taken_out_by_itself(site: Site, on: tuple[str, ...]) -> None:
    add_beside(site)
    pristine = snapshot(site.root)
    target = ["--root", str(site.root), "--target", "vllm"]
    assert site.apply(*(f"CONFIG_{gate}=y" for gate in on)) == 0
    assert run(["revert", *target, "0001-fast.patch"]) == 0
    assert "CONFIG_FAST:" not in site.read("step.py")
    left = set(on) - {"FAST"}
    for gate in ("OTHER", "FASTER", "OTHER"):
        assert site.read("text.json") == beside(left)["vllm/text.json"]
        left ^= {gate}
        assert site.patchkit("config", "set", f"CONFIG_{gate}={'y' if gate in left else 'n'}") == 0
        made: dict[str, object] = {}
        exec(beside(left)["vllm/step.py"] + "made = tail(0)\n", made)  # noqa: S102 -- code of this file
        assert site.ask("step.tail(0)") == str(made["made"])
    assert run(["revert", *target]) == 0
    assert difference(snapshot(site.root), pristine) == []


def test_a_guard_patch_in_the_context_of_another_is_taken_out_above_a_layer(site: Site, tmp_path: Path) -> None:
    target = put_layer_below(site, tmp_path)
    assert site.patchkit("apply", "--set", "CONFIG_FAST=y", "--set", "CONFIG_OTHER=y") == 0
    assert run(["revert", *target, "0001-fast.patch"]) == 0
    assert site.ask("step.tail(0)") == "111"
    assert run(["revert", *target, "lower.diff"]) == 0
    assert site.patchkit("apply") == 0
    assert site.ask("step.tail(0)") == "169"


def test_select_patches_in_the_context_of_each_other_are_refused_and_said_why(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    add_beside(site, toggle="select")
    assert site.apply() == 0
    capsys.readouterr()
    assert site.patchkit("config", "set", "CONFIG_OTHER=y") == 1
    said = told(capsys)
    why = "has in its context, at `y += 30`, what is made by 0001-fast.patch in vllm/step.py, which CONFIG_FAST"
    assert (
        said.count(f"warning: 0002-other.patch:14 {why} switches off: CONFIG_FAST=y, or let OTHER `depends on FAST`")
        == 1
    )
    assert run(["series", "lint", str(site.patches), "--root", str(site.root)]) == 1
    assert f"0002-other.patch:14: error: {why} switches off: let OTHER depend on FAST (or let guards" in told(capsys)


def test_a_guard_in_the_context_of_a_select_patch_that_goes_is_refused_and_said_why(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while it is off itself: its guards stand in the files."""
    site.add("PLAIN", beside(()), beside(("FAST",)), toggle="select")
    site.add("OTHER", beside(("FAST",)), beside(("FAST", "OTHER")))
    (site.root / "vllm" / "text.json").write_text(BESIDE)
    target = ["--root", str(site.root), "--target", "vllm"]
    what = "0002-other.patch:14 has in its context, at `y += 30`, what is made by 0001-plain.patch in vllm/step.py"
    way = "CONFIG_PLAIN=y, or let OTHER `depends on PLAIN` in the Kconfig"
    assert site.apply() == 1
    assert f"{what}, which CONFIG_PLAIN switches off: {way}" in told(capsys)
    assert site.apply("CONFIG_PLAIN=y") == 0
    assert site.patchkit("config", "set", "CONFIG_PLAIN=n") == 1
    assert f"{what}, which CONFIG_PLAIN switches off: {way}" in told(capsys)
    assert run(["revert", *target, "0001-plain.patch"]) == 1
    assert f"{what}, which is taken out: `revert --layer 1` takes both out" in told(capsys)


def test_lines_that_are_there_without_the_guard_below_them_are_refused_and_said_why(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    more = changed(FILES, other=("VALUE = 1\n", "VALUE = 1\nMORE = 1\n"))
    site.add("FAST", FILES, more)
    site.add("PLAIN", more, FILES, toggle="select")
    assert site.apply("CONFIG_PLAIN=y") == 1
    said = told(capsys)
    assert "upstreamed" in said
    assert "0002-plain.patch:13 edits lines of 0001-fast.patch in vllm/other.py, which CONFIG_FAST switches off" in said


@pytest.mark.parametrize("toggle", ["guard", "select"])
def test_a_patch_that_was_taken_out_stays_out_until_it_is_applied_again(site: Site, toggle: str) -> None:
    site.add("FAST", FILES, changed(FILES, step=("x + 1", "x + 10")), toggle=toggle)
    site.add("OTHER", FILES, changed(FILES, other=("1", "2")))
    target = ["--root", str(site.root), "--target", "vllm"]
    assert site.apply("CONFIG_FAST=y") == 0
    assert run(["revert", *target, "0001-fast.patch"]) == 0
    for setting in ("CONFIG_OTHER=y", "CONFIG_FAST=n", "CONFIG_FAST=y"):
        assert site.patchkit("config", "set", setting) == 0
        assert site.ask("step.step(0), other.VALUE") == "(2, 2)"
        assert site.patchkit("status", "--unlocked", "--require-applied") == 1
    assert site.apply() == 0
    assert site.ask("step.step(0), other.VALUE") == "(20, 2)"


@pytest.mark.parametrize("toggle", ["guard", "select"])
def test_a_patch_that_was_taken_out_comes_back_while_its_toggle_is_off(
    site: Site, toggle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add("FAST", FILES, changed(FILES, step=("x + 1", "x + 10")), toggle=toggle)
    assert site.apply("CONFIG_FAST=y") == 0
    assert run(["revert", "--root", str(site.root), "--target", "vllm", "0001-fast.patch"]) == 0
    assert site.patchkit("config", "set", "CONFIG_FAST=n") == 0
    capsys.readouterr()
    assert site.patchkit("config", "set", "CONFIG_FAST=y") == 0
    assert "0001-fast.patch, which CONFIG_FAST switches, was taken out" in capsys.readouterr().err
    assert site.patchkit("config", "set", "CONFIG_FAST=n") == 0
    assert site.apply() == 0
    assert ("if CONFIG_FAST:" in site.read("step.py")) == (toggle == "guard")
    assert site.patchkit("status", "--unlocked", "--require-applied") == 0
    capsys.readouterr()
    assert site.patchkit("config", "set", "CONFIG_FAST=y") == 0
    assert "taken out" not in capsys.readouterr().err
    assert site.ask("step.step(0)") == "20"


def test_bytes_that_are_no_text_are_a_value_that_guarded_code_reads(site: Site, tmp_path: Path) -> None:
    site.add("FAST", FILES, changed(FILES, other=("1", "CONFIG_TEXT")))
    given = tmp_path / "x.config"
    given.write_bytes(b'CONFIG_FAST=y\nCONFIG_TEXT="a\xffb"\n')
    assert site.patchkit("apply", "--unlocked", "--config", str(given)) == 0
    assert site.ask("ascii(other.VALUE)") == r"'a\udcffb'"
    assert site.patchkit("config", "set", "CONFIG_TEXT=c") == 0
    assert site.ask("other.VALUE") == "c"


def test_edit_and_refresh_on_a_guarded_tree_start_from_the_release(full: Site, tmp_path: Path) -> None:
    assert full.apply("CONFIG_FAST=y") == 0
    guarded = snapshot(full.root)
    work = tmp_path / "w"
    where = ["--patches", str(full.series), "--work", str(work)]
    for patch, now in (("0002-faster.patch", "x + 1000"), ("0001-fast.patch", "x + 10")):
        shutil.rmtree(work, ignore_errors=True)
        tree = ["--target", "vllm", "--root", str(full.root)]
        assert run(["series", "edit", patch, *where, *tree]) == 0
        step = work / "vllm" / "step.py"
        assert "CONFIG_" not in step.read_text()
        assert not (work / "vllm" / "_patchkit").exists()
        before = (full.series / patch).read_bytes()
        assert run(["series", "refresh", patch, *where]) == 0
        assert (full.series / patch).read_bytes() == before
        step.write_text(step.read_text().replace("x + 100\n", "x + 1000\n"))
        assert run(["series", "refresh", patch, *where]) == 0
        after = (full.series / patch).read_bytes()
        assert after.partition(b"\n---\n")[0] == before.partition(b"\n---\n")[0]
        assert f"+    a = {now}\n".encode() in after
    assert difference(snapshot(full.root), guarded) == []
    assert full.apply() == 0
    assert full.ask("step.step(0)") == "20"
    assert full.patchkit("config", "set", "CONFIG_FASTER=y") == 0
    assert full.ask("step.step(0)") == "2000"
