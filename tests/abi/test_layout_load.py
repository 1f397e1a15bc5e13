"""Libraries that are damaged, or whose tables lie: each is refused with words, and none takes the command with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.abi import layout_table
from patchkit.abi.layout_table import library_layouts
from patchkit.errors import ObjectFormatError, RefusedError
from patchkit.resources import native_directory

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

HEAD = """
#include "patchkit/layout.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct point { int x, y; };
static const struct patchkit_layout_field of_point[] = {
    PATCHKIT_LAYOUT_FIELD(struct point, x), PATCHKIT_LAYOUT_FIELD(struct point, y)};
static const struct patchkit_layout points[] = {PATCHKIT_LAYOUT_STRUCT("point", struct point, of_point)};
"""
TABLE = "const struct patchkit_layout_table patchkit_layout_table = {%s};\n"
GOOD = TABLE % "1, 1, points"
WILD = "(const void *)0x41414141"


def _constructor(body: str) -> str:
    return f"__attribute__((constructor)) static void begin(void) {{ {body} }}\n"


def _with_rows(row: str) -> str:
    return f"static const struct patchkit_layout rows[] = {{{row}}};\n" + TABLE % "1, 1, rows"


@pytest.fixture
def built(tmp_path: Path) -> Callable[[str], Path]:
    def build(source: str) -> Path:
        (tmp_path / "table.c").write_text(HEAD + source)
        line = ["gcc", "-shared", "-fPIC", f"-I{native_directory() / 'include'}", "table.c", "-o", "libtable.so"]
        subprocess.run(line, cwd=tmp_path, check=True)
        return tmp_path / "libtable.so"

    return build


@pytest.mark.parametrize("kept", [0, 60, 1000, 4096, 9000])
def test_a_library_that_was_cut_is_refused(built: Callable[[str], Path], kept: int) -> None:
    library = built(GOOD)
    content = library.read_bytes()
    assert kept < len(content)
    library.write_bytes(content[:kept])
    with pytest.raises(ObjectFormatError, match="not a readable ELF file"):
        library_layouts(library)


@pytest.mark.parametrize(
    "source",
    [
        TABLE % f"1, 1, {WILD}",
        _with_rows(f'{{"point", {WILD}, 1, 8, 4, 0}}'),
        _with_rows(f"{{{WILD}, of_point, 2, 8, 4, 0}}"),
        GOOD + _constructor("abort();"),
    ],
    ids=["wild structs", "wild fields", "wild name", "a constructor aborts"],
)
def test_a_library_that_kills_who_loads_it_is_refused(built: Callable[[str], Path], source: str) -> None:
    with pytest.raises(RefusedError, match=r"libtable\.so: loading it killed the process that did: signal "):
        library_layouts(built(source))


def test_a_count_beyond_the_structs_is_refused(built: Callable[[str], Path]) -> None:
    with pytest.raises(RefusedError, match=r"libtable\.so: "):  # what lies behind them decides how
        library_layouts(built(TABLE % "1, 4000, points"))


def test_the_signal_is_said(built: Callable[[str], Path]) -> None:
    with pytest.raises(RefusedError, match=r"killed the process that did: signal 11 \(Segmentation fault\)"):
        library_layouts(built(TABLE % f"1, 1, {WILD}"))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (TABLE % "1, 3, 0", "structs of the table are 3, at address 0"),
        (_with_rows('{"point", 0, 2, 8, 4, 0}'), "fields of struct point are 2, at address 0"),
        (_with_rows("{0, of_point, 2, 8, 4, 0}"), "name is at address 0"),
        (_with_rows('{"point", of_point, 5000, 8, 4, 0}'), "more than 4096"),
        (
            f"static const struct patchkit_layout rows[] = {{{'{0, 0, 4000, 8, 4, 0},' * 20}}};\n"
            + TABLE % "1, 20, rows",
            "more than 65536",
        ),
    ],
    ids=["structs", "fields", "a name", "many fields", "many fields together"],
)
def test_a_table_that_cannot_be_followed_is_refused(built: Callable[[str], Path], source: str, why: str) -> None:
    with pytest.raises(RefusedError) as raised:
        library_layouts(built(source))
    assert why in raised.value.why


def test_a_constructor_that_ends_the_process_is_refused(built: Callable[[str], Path]) -> None:
    with pytest.raises(RefusedError, match="loading it ended the process"):
        library_layouts(built(GOOD + _constructor("_exit(0);")))


def test_a_constructor_that_does_not_return_is_stopped(
    built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_table, "_PATIENCE_SECONDS", 1.0)
    with pytest.raises(RefusedError, match=r"loading libtable\.so did not end within 1 seconds"):
        library_layouts(built(GOOD + _constructor("for (;;) pause();")))


def test_what_a_constructor_prints_is_no_part_of_the_answer(built: Callable[[str], Path]) -> None:
    [layout] = library_layouts(built(GOOD + _constructor('puts("hello"); fflush(stdout);')))
    assert [(field.name, field.offset) for field in layout.fields] == [("x", 0), ("y", 4)]


def test_a_library_that_the_loader_refuses_is_refused_with_its_words(built: Callable[[str], Path]) -> None:
    with pytest.raises(RefusedError) as raised:
        library_layouts(built(GOOD + "extern int nobody_has_it(void); int here(void) { return nobody_has_it(); }\n"))
    assert "nobody_has_it" in raised.value.why


def test_a_library_without_a_table_is_not_loaded(built: Callable[[str], Path], tmp_path: Path) -> None:
    library = built(_constructor(f'fclose(fopen("{tmp_path}/loaded", "w"));'))
    with pytest.raises(RefusedError, match="no table of layouts"):
        library_layouts(library)
    assert not (tmp_path / "loaded").exists()


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libfifo.so")
    with pytest.raises(ObjectFormatError, match="not a file"):
        library_layouts(tmp_path / "libfifo.so")


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ObjectFormatError, match="libnothing"):
        library_layouts(tmp_path / "libnothing.so")
