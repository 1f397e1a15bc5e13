"""Toggles through the whole path: a Kconfig decides which patches stand in the tree, and what patched code reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from patchkit.cli.main import run
from patchkit.receipt import read_receipt
from tests.blackbox.command import difference, snapshot
from tests.blackbox.wheels import engine, record_of, recorded, wheel_tree, write_tree
from tests.making import diff, header, lines

KCONFIG = """\
config SCALE
	bool "Scale the scores"
config SCALE_VALUE
	string "Factor"
	depends on SCALE
	default "1.0"
config TRACE
	bool "Trace"
	depends on VLLM_VERSION >= 0.6
config LIMIT
	int "Limit"
	range 1 64
	default 8
config BOTH
	bool "Both"
	select SCALE
	select TRACE
	depends on VLLM_VERSION >= 0.6
"""
FILES = {
    **{path: content.decode() for path, content in engine().items()},
    "vllm/scale.py": '"""Scores."""\nfrom __future__ import annotations\n\nFACTOR = 1.0\n',
    "vllm/trace.py": lines(12),
    "vllm/both.py": lines(12),
    "vllm/always.py": "LIMIT = 4\n",
}
SCALE = {**FILES, "vllm/scale.py": FILES["vllm/scale.py"].replace("= 1.0", "= float(CONFIG_SCALE_VALUE)")}
TRACE = {
    **FILES,
    "vllm/trace.py": lines(12).replace("line 6\n", "six\n"),
    "vllm/both.py": lines(12).replace("line 2\n", "two\n"),
}
BOTH = {**FILES, "vllm/both.py": lines(12).replace("line 11\n", "eleven\n")}
ALWAYS = {**FILES, "vllm/always.py": "LIMIT = CONFIG_LIMIT if CONFIG_BOTH else 4\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(
        tmp_path / "site", wheel_tree("vllm", "0.6.3", {name: text.encode() for name, text in FILES.items()})
    )


@pytest.fixture
def patches(tmp_path: Path, root: Path) -> Path:
    directory = tmp_path / "own" / "vllm" / "0.6.3"
    directory.mkdir(parents=True)
    texts = {
        "0001-scale.patch": header("scale", Config="SCALE") + diff(FILES, SCALE),
        "0002-trace.patch": header("trace", Config="TRACE") + diff(FILES, TRACE),
        "0003-both.patch": header("both", Config="BOTH") + diff(FILES, BOTH),
        "0004-always.patch": header("always") + diff(FILES, ALWAYS),
    }
    for name, text in texts.items():
        (directory / name).write_bytes(text)
    (directory / "series").write_text("".join(f"{name}\n" for name in texts))
    (tmp_path / "own" / "vllm" / "Kconfig").write_text(KCONFIG)
    return tmp_path / "own"


class Apply(Protocol):
    def __call__(
        self, *settings: str, status: int = 0, command: str = "apply", more: tuple[object, ...] = ()
    ) -> None: ...


@pytest.fixture
def apply(root: Path, patches: Path) -> Apply:
    def act(*settings: str, status: int = 0, command: str = "apply", more: tuple[object, ...] = ()) -> None:
        options = [word for one in settings for word in ("--set", f"CONFIG_{one}")]
        where = ["--root", str(root), "--patches", str(patches), "--no-shipped", "--unlocked"]
        assert run([command, *where, *options, *map(str, more)]) == status

    return act


def constants(root: Path) -> dict[str, object]:
    names: dict[str, object] = {}
    exec((root / "vllm/_patchkit/autoconf.py").read_text(), names)  # noqa: S102 -- what engines do
    return {name.removeprefix("CONFIG_"): value for name, value in names.items() if name.startswith("CONFIG_")}


def python(root: Path, code: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def inodes(root: Path) -> dict[str, int]:
    return {path.relative_to(root).as_posix(): path.stat().st_ino for path in root.rglob("*") if path.is_file()}


def test_defaults_decide_without_a_word(apply: Apply, root: Path) -> None:
    before = snapshot(root)
    apply()
    assert constants(root) == {"SCALE": False, "SCALE_VALUE": "", "TRACE": False, "LIMIT": 8, "BOTH": False}
    assert (root / "vllm/scale.py").read_text() == FILES["vllm/scale.py"]
    assert record_of(root) == recorded(root)
    assert run(["revert", "--root", str(root)]) == 0
    assert difference(snapshot(root), before) == []
    assert not (root / ".patchkit").exists()


def test_a_select_switches_what_it_selects(apply: Apply, root: Path) -> None:
    apply("BOTH=y")
    assert constants(root)["SCALE"] is constants(root)["TRACE"] is True
    assert "eleven" in (root / "vllm/both.py").read_text()
    assert "two" in (root / "vllm/both.py").read_text()
    assert read_receipt(root / ".patchkit/vllm/receipt.json").configuration == (("BOTH", "y"),)


def test_code_reads_a_value_through_an_import_that_is_supplied(apply: Apply, root: Path) -> None:
    apply("SCALE=y", "SCALE_VALUE=0.5")
    text = (root / "vllm/scale.py").read_text().splitlines()
    assert text[:3] == [
        '"""Scores."""',
        "from __future__ import annotations",
        "from vllm._patchkit.autoconf import CONFIG_SCALE_VALUE",
    ]
    assert python(root, "import vllm.scale, vllm.always; print(vllm.scale.FACTOR, vllm.always.LIMIT)") == "0.5 4"
    apply("SCALE_VALUE=0.25", "LIMIT=9", "BOTH=y")
    assert python(root, "import vllm.scale, vllm.always; print(vllm.scale.FACTOR, vllm.always.LIMIT)") == "0.25 9"
    apply(command="plan")


def test_sources_get_the_include_that_they_lack(apply: Apply, root: Path, patches: Path) -> None:
    condition = "CONFIG_SCALE && IS_ENABLED(CONFIG_SCALE) && !IS_ENABLED(CONFIG_TRACE) && CONFIG_LIMIT == 8"
    text = f"#if {condition}\nint on;\n#endif\n"
    new = {**FILES, "vllm/csrc/kernel.cu": text}
    (patches / "vllm/0.6.3/0005-kernel.patch").write_bytes(header("kernel", Config="SCALE") + diff(FILES, new))
    with (patches / "vllm/0.6.3/series").open("a") as series:
        series.write("0005-kernel.patch\n")
    apply("SCALE=y")
    kernel = root / "vllm/csrc/kernel.cu"
    assert kernel.read_text() == f'#include "../../.patchkit/vllm/autoconf.h"\n{text}'
    shown = subprocess.run(["cc", "-E", "-P", "-x", "c", kernel], capture_output=True, text=True, check=True).stdout
    assert "int on;" in shown
    apply("TRACE=y")
    shown = subprocess.run(["cc", "-E", "-P", "-x", "c", kernel], capture_output=True, text=True, check=True).stdout
    assert "int on;" not in shown


def test_a_flip_writes_only_the_files_of_patches_whose_gate_changed(apply: Apply, root: Path) -> None:
    apply("SCALE=y", "TRACE=y")
    before = inodes(root)
    apply("TRACE=n")
    changed = {name for name, inode in inodes(root).items() if before.get(name) != inode}
    assert {name for name in changed if not name.startswith(".patchkit/")} == {
        "vllm/trace.py",
        "vllm/both.py",
        "vllm/_patchkit/autoconf.py",
        "vllm-0.6.3.dist-info/RECORD",
    }
    assert (root / "vllm/trace.py").read_text() == FILES["vllm/trace.py"]
    before = inodes(root)
    apply("LIMIT=9")
    changed = {name for name, inode in inodes(root).items() if before.get(name) != inode}
    assert {name for name in changed if not name.startswith(".patchkit/")} == {
        "vllm/_patchkit/autoconf.py",
        "vllm-0.6.3.dist-info/RECORD",
    }


def test_a_second_time_there_is_nothing_to_do(
    apply: Apply, root: Path, patches: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply("SCALE=y")
    before = inodes(root)
    capsys.readouterr()
    apply("SCALE=y")
    apply()
    monkeypatch.chdir(patches.parent)
    same = ["--root", str(root), "--patches", patches.name, "--no-shipped", "--unlocked"]
    assert run(["apply", *same]) == 0, "named in another way"
    assert capsys.readouterr().out.count("nothing to do") == 3
    assert inodes(root) == before
    apply(command="status", more=("--require-applied",))


def test_the_state_shows_the_configuration(apply: Apply, root: Path, tmp_path: Path) -> None:
    apply("SCALE=y", "SCALE_VALUE=0.5")
    state = root / ".patchkit/vllm"
    assert sorted(path.name for path in state.iterdir() if path.is_file() and path.name != "lock") == [
        ".config", "auto.conf", "autoconf.h", "manifest.json", "receipt.json",
    ]  # fmt: skip
    text = (state / ".config").read_text()
    assert 'CONFIG_SCALE_VALUE="0.5"' in text
    assert "# CONFIG_TRACE is not set" in text
    assert "VLLM_VERSION" not in text
    assert "CONFIG_SCALE=y" in (state / "auto.conf").read_text().splitlines()
    assert '#define CONFIG_SCALE_VALUE "0.5"' in (state / "autoconf.h").read_text()
    manifest = json.loads((state / "manifest.json").read_text())
    assert (manifest["schema"], manifest["version"]) == (1, "0.6.3")
    assert set(manifest["files"]) == {".config", "auto.conf", "autoconf.h", "vllm/_patchkit/autoconf.py"}
    kept = tmp_path / "kept.config"
    kept.write_text(text)
    assert run(["revert", "--root", str(root)]) == 0
    apply(more=("--config", kept))
    assert (state / ".config").read_text() == text


def test_all_faults_are_told_and_nothing_is_written(
    apply: Apply, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(root, own=True)
    given = tmp_path / "x.config"
    given.write_text("CONFIG_SCALE=y\nCONFIG_SCALE=y\nCONFIG_NOSUCH=y\nCONFIG_LIMIT=99\n")
    lower = tmp_path / "lower.config"
    lower.write_text("CONFIG_LIMIT=many\nCONFIG_SIMPLE=maybe\n")
    apply("SCALE_VALUE=2", "SCALE=n", status=1, more=("--config", lower, "--config", given))
    said = capsys.readouterr().err
    for words in (
        f"{lower}:1: CONFIG_LIMIT=many: no value is written so\n    {given}:4 counts; expected a line as in",
        f"{lower}:2: CONFIG_SIMPLE=maybe: ",
        f"{given}:2: CONFIG_SCALE is set a second time",
        f"{given}:3: CONFIG_NOSUCH=y: there is no such symbol",
        f"{given}:4: CONFIG_LIMIT=99 is not what comes of it: it is 8",
        "range is 1 to 64",
        "--set: CONFIG_SCALE_VALUE=2 is not what comes of it",
        "depends on SCALE, which is n (SCALE=n)",
        "next: `patchkit config why CONFIG_SCALE_VALUE` says more, with the same --config, --set and --patches",
    ):
        assert words in said
    assert difference(snapshot(root, own=True), before) == []


def test_fault_about_no_symbol_leads_to_what_there_is(apply: Apply, capsys: pytest.CaptureFixture[str]) -> None:
    apply("NOSUCH=y", status=1)
    assert "next: `patchkit config show` has every symbol, with the same --config" in capsys.readouterr().err


def test_a_diff_on_top_survives_a_flip_below(apply: Apply, root: Path, tmp_path: Path) -> None:
    apply("SCALE=y")
    now = {"vllm/scale.py": (root / "vllm/scale.py").read_text()}
    mine = {"vllm/scale.py": now["vllm/scale.py"] + "MINE = 1\n"}
    (tmp_path / "mine.diff").write_bytes(diff(now, mine))
    before = snapshot(root)
    assert run(["apply", "--root", str(root), "--patch", str(tmp_path / "mine.diff")]) in (0, 1)
    one = {"vllm/both.py": lines(12)}
    (tmp_path / "mine.diff").write_bytes(diff(one, {"vllm/both.py": lines(12).replace("line 6\n", "mine\n")}))
    assert run(["apply", "--root", str(root), "--patch", str(tmp_path / "mine.diff")]) == 0
    apply("TRACE=y")
    assert (root / "vllm/both.py").read_text() == lines(12).replace("line 6\n", "mine\n").replace("line 2\n", "two\n")
    assert "from vllm._patchkit.autoconf" in (root / "vllm/scale.py").read_text()
    apply("TRACE=n")
    assert run(["revert", "--root", str(root), "mine.diff"]) == 0
    assert difference(snapshot(root), before) == []


def test_taking_one_patch_out_leaves_the_configuration(apply: Apply, root: Path) -> None:
    apply("SCALE=y", "TRACE=y")
    assert run(["revert", "--root", str(root), "0002-trace.patch"]) == 0
    assert (root / "vllm/_patchkit/autoconf.py").exists()
    assert python(root, "import vllm.scale; print(vllm.scale.FACTOR)") == "1.0"
    assert run(["revert", "--root", str(root)]) == 0
    assert not (root / "vllm/_patchkit").exists()
    assert record_of(root) == recorded(root)


def test_a_value_waits_for_its_toggle_to_come_back(apply: Apply, root: Path) -> None:
    apply("SCALE=y", "SCALE_VALUE=0.5")
    apply("SCALE=n")
    assert constants(root)["SCALE_VALUE"] == ""
    assert (root / "vllm/scale.py").read_text() == FILES["vllm/scale.py"]
    apply("SCALE=y")
    assert constants(root)["SCALE_VALUE"] == "0.5"


def test_series_that_are_not_asked_for_keep_their_symbols(apply: Apply, root: Path, tmp_path: Path) -> None:
    apply("SCALE=y", "SCALE_VALUE=0.5")
    other = tmp_path / "other" / "vllm" / "0.6.3"
    other.mkdir(parents=True)
    new = {**FILES, "vllm/layers/attention.py": "VALUE = CONFIG_OTHER_VALUE\n"}
    (other / "0001-other.patch").write_bytes(header("other", Config="OTHER") + diff(FILES, new))
    (other / "series").write_text("0001-other.patch\n")
    kconfig = 'config OTHER\n\tbool "Other"\nconfig OTHER_VALUE\n\tint "Value"\n\tdefault 7\n'
    (other.parent / "Kconfig").write_text(kconfig)
    where = ["--root", str(root), "--patches", str(tmp_path / "other"), "--no-shipped", "--unlocked"]
    assert run(["apply", *where, "--set", "CONFIG_OTHER=y"]) == 0
    assert constants(root)["SCALE_VALUE"] == "0.5"
    assert constants(root)["OTHER_VALUE"] == 7
    assert python(root, "import vllm.scale, vllm.layers.attention as a; print(vllm.scale.FACTOR, a.VALUE)") == "0.5 7"
    apply("SCALE_VALUE=0.25")
    assert (constants(root)["SCALE_VALUE"], constants(root)["OTHER"]) == ("0.25", True)
    assert (
        run(["apply", *where[:2], "--patches", str(tmp_path / "own"), *where[2:], "--set", "CONFIG_OTHER_VALUE=8"]) == 0
    )
    assert (constants(root)["SCALE_VALUE"], constants(root)["OTHER_VALUE"]) == ("0.25", 8)


def test_the_configuration_goes_with_the_last_series(apply: Apply, root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    (tmp_path / "mine.diff").write_bytes(
        diff({"vllm/both.py": lines(12)}, {"vllm/both.py": lines(12).replace("line 6\n", "mine\n")})
    )
    apply("SCALE=y")
    assert run(["apply", "--root", str(root), "--patch", str(tmp_path / "mine.diff")]) == 0
    assert run(["revert", "--root", str(root), "--layer", "1"]) == 0
    assert not (root / "vllm/_patchkit").exists()
    assert not (root / ".patchkit/vllm/autoconf.h").exists()
    assert "mine" in (root / "vllm/both.py").read_text()
    assert run(["revert", "--root", str(root)]) == 0
    assert difference(snapshot(root), before) == []


def test_two_kconfigs_that_define_a_symbol_are_refused(
    apply: Apply, patches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (patches / "Kconfig").write_text('config OTHER\n\tbool "x"\nconfig TRACE\n\tbool "again"\n')
    apply(status=1)
    said = capsys.readouterr().err
    assert "TRACE is defined by another Kconfig too" in said
    assert f"{patches}/Kconfig:3" in said


def test_a_link_out_of_the_directory_is_refused(
    apply: Apply, patches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("config SECRET\n\tbool\n")
    (patches / "vllm" / "more").symlink_to(tmp_path / "secret")
    kconfig = patches / "vllm" / "Kconfig"
    kconfig.write_text(KCONFIG + 'source "more"\n')
    apply(status=1)
    assert "leaves the series through a symlink" in capsys.readouterr().err
    kconfig.unlink()
    kconfig.symlink_to(tmp_path / "secret")
    apply(status=1)
    assert "Kconfig leaves the series through a symlink" in capsys.readouterr().err


def test_the_bytecode_of_constants_is_checked_by_hash(patches: Path, tmp_path: Path) -> None:
    """Two flips within a second leave a file of the same size and time; Python must not run the old values."""
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    write_tree(site, wheel_tree("vllm", "0.6.3", {name: text.encode() for name, text in FILES.items()}))
    where = ["--python", str(home / "bin/python"), "--target", "vllm", "--patches", str(patches), "--no-shipped"]
    for value in ("2", "3"):
        assert run(["apply", *where, "--unlocked", "--set", f"CONFIG_LIMIT={value}", "--set", "CONFIG_BOTH=y"]) == 0
        (cached,) = (site / "vllm/_patchkit/__pycache__").glob("autoconf.*.pyc")
        assert int.from_bytes(cached.read_bytes()[4:8], "little") == 0b11, "hash-based, and checked"
        assert python(site, "import vllm.always; print(vllm.always.LIMIT)") == value
    assert run(["revert", "--python", str(home / "bin/python"), "--target", "vllm"]) == 0
    assert not (site / "vllm/_patchkit").exists()


def test_the_reinstall_takes_the_configuration_with_the_old_state(apply: Apply, root: Path) -> None:
    apply("SCALE=y")
    shutil.rmtree(root / "vllm")
    write_tree(root, wheel_tree("vllm", "0.6.3", {name: text.encode() for name, text in FILES.items()}))
    apply("TRACE=y")
    assert (root / ".patchkit/vllm/archive/1/autoconf.h").exists()
    assert constants(root)["SCALE"] is False


def test_hex_numbers_are_written_so_that_they_are_read_again(
    apply: Apply, root: Path, patches: Path, tmp_path: Path
) -> None:
    kconfig = patches / "vllm" / "Kconfig"
    kconfig.write_text(KCONFIG.replace("int", "hex").replace("range 1 64", "range 0x1 0x64").replace("t 8", "t 1F"))
    apply("SCALE=y")
    written = root / ".patchkit/vllm/.config"
    assert "CONFIG_LIMIT=0x1f\n" in written.read_text()
    kept = tmp_path / "kept.config"
    shutil.copy(written, kept)
    apply("LIMIT=10")
    assert "CONFIG_LIMIT=0x10\n" in written.read_text()
    assert constants(root)["LIMIT"] == 16
    apply(more=("--config", kept))
    assert constants(root)["LIMIT"] == 31


def test_constants_that_a_reinstall_left_behind_are_written_anew(apply: Apply, root: Path) -> None:
    """Files that were unpacked over a patched tree: no installer took away what RECORD names."""
    apply("SCALE=y", "SCALE_VALUE=0.5")
    write_tree(root, wheel_tree("vllm", "0.6.3", {name: text.encode() for name, text in FILES.items()}))
    before = snapshot(root)
    apply("TRACE=y")
    assert (constants(root)["SCALE"], constants(root)["TRACE"]) == (False, True)
    apply("TRACE=n")
    assert run(["revert", "--root", str(root)]) == 0
    assert difference(snapshot(root), before) == []


def test_another_file_in_the_place_of_the_constants_is_refused(
    apply: Apply, root: Path, patches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (patches / "vllm/0.6.3/0005-own.patch").write_bytes(
        header("own", Config="TRACE") + diff(FILES, {**FILES, "vllm/_patchkit/autoconf.py": "MINE = 1\n"})
    )
    with (patches / "vllm/0.6.3/series").open("a") as series:
        series.write("0005-own.patch\n")
    before = snapshot(root)
    apply("TRACE=y", status=1)
    assert "vllm/_patchkit/autoconf.py: a patch makes this file: its name is patchkit's" in capsys.readouterr().out
    (root / "vllm/_patchkit").mkdir()
    (root / "vllm/_patchkit/autoconf.py").write_text("MINE = 1\n")
    apply(status=1)
    assert "vllm/_patchkit/autoconf.py: the release has a file there" in capsys.readouterr().out
    shutil.rmtree(root / "vllm/_patchkit")
    assert difference(snapshot(root), before) == []


def test_a_kconfig_that_is_gone_leaves_the_tree_as_it_was(
    apply: Apply, root: Path, patches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it there are no constants to write: the receipt would say n, and the code would go on with y."""
    pristine = snapshot(root)
    apply("SCALE=y")
    before = snapshot(root, own=True)
    (patches / "vllm" / "Kconfig").unlink()
    for settings in ((), ("SCALE=n",)):
        capsys.readouterr()
        apply(*settings, status=1)
        said = capsys.readouterr().err
        assert "CONFIG_BOTH: the Kconfig that defined it is gone" in said
        assert "which defined CONFIG_BOTH, CONFIG_SCALE, CONFIG_TRACE" in said
    where = ["--root", str(root), "--target", "vllm", "--patches", str(patches), "--no-shipped"]
    assert run(["config", "set", "CONFIG_SCALE=n", *where]) == 1
    assert difference(snapshot(root, own=True), before) == []
    assert run(["revert", "--root", str(root)]) == 0
    assert difference(snapshot(root), pristine) == []


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_kconfig_that_is_no_file_is_not_taken_for_none(
    make: Callable[[Path], object], apply: Apply, root: Path, patches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(root)
    (patches / "vllm" / "Kconfig").unlink()
    make(patches / "vllm" / "Kconfig")
    apply(status=1)
    assert "Kconfig" in capsys.readouterr().err
    assert difference(snapshot(root), before) == []
