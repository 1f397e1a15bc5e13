"""The only writer to the terminal: what it makes visible, what it paints, and what it does when nobody reads."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pytest

from patchkit.errors import RefusedError
from patchkit.output import Output, one_line, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9", "plain \u00e9"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\x0db"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\u202egpj", "\\u202egpj"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("a\tb\nc", "a\tb\nc"),
    ],
)
def test_what_steers_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_name_stays_on_its_line() -> None:
    assert one_line("a\nb\tc") == "a\\nb\\tc"


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        Output(stdout=stream, stderr=stream).line("x", style="bad")
    assert terminal.getvalue() == "\x1b[31mx\x1b[0m\n"
    assert file.getvalue() == "x\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_turned_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    terminal = Terminal()
    Output(stdout=terminal, stderr=terminal).line("x", style="bad")
    assert terminal.getvalue() == "x\n"


def test_error_has_its_three_parts() -> None:
    stream = io.StringIO()
    Output(stderr=stream).error(RefusedError("what", why="why\n  more", hint="do"))
    assert stream.getvalue() == "error: what\n  why\n    more\nnext: do\n"


def test_line_is_one_line() -> None:
    stream = io.StringIO()
    Output(stdout=stream, stderr=stream).line("a\nb")
    Output(stdout=stream, stderr=stream).note("c\nd")
    assert stream.getvalue() == "a\\nb\nc\\nd\n"


def test_error_is_a_document_with_json_unless_there_is_one() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(machine=True, stdout=out, stderr=err)
    output.error(RefusedError("what", why="why", hint="do"))
    error = {"what": "what", "why": "why", "hint": "do"}
    assert json.loads(out.getvalue()) == {"schema": 1, "status": 1, "error": error}
    output.error(RefusedError("again"))
    assert json.loads(out.getvalue())
    assert err.getvalue().count("error: ") == 2


def test_full_disk_is_remembered_and_a_reader_who_has_gone_is_not(tmp_path: Path) -> None:
    for number, lost in ((errno.ENOSPC, "No space left on device"), (errno.EPIPE, "")):
        with (tmp_path / f"{number}").open("w") as stream:
            output = Output(stdout=stream)
            output.lose(OSError(number, os.strerror(number)))
            assert output.lost == lost
            output.line("nowhere")
        assert (tmp_path / f"{number}").read_text() == ""


def test_progress_waits_a_second_and_json_has_none() -> None:
    long_ago, stream = -1e9, io.StringIO()
    Output(stderr=stream).progress("at once")
    Output(stderr=stream, machine=True, begun=long_ago).progress("machine")
    assert stream.getvalue() == ""
    Output(stderr=stream, begun=long_ago).progress("long")
    assert stream.getvalue() == "long\n"


def test_document_is_ascii_json() -> None:
    stream = io.StringIO()
    Output(stdout=stream).document({"name": "\udcff\u00e9"})
    assert stream.getvalue().isascii()
    assert json.loads(stream.getvalue()) == {"name": "\udcff\u00e9"}


def test_stream_of_another_encoding_gets_escapes() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", newline="\n")
    Output(stdout=stream).line("\u00e9 \u4e2d")
    stream.flush()
    assert stream.buffer.getvalue() == b"\xe9 \\u4e2d\n"


def test_raw_bytes_are_left_alone_in_a_file_and_shown_on_a_terminal() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Output(stdout=stream).raw(b"\xff\x1b\n")
    assert stream.buffer.getvalue() == b"\xff\x1b\n"
    terminal = Terminal()
    Output(stdout=terminal).raw(b"\xff\x1b\n")
    assert terminal.getvalue() == "\\xff\\x1b\n"
