"""Guards in C, C++ and CUDA, checked by unifdef and by the preprocessor, not only by our own folding."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.config.guard_edit import Level
from patchkit.config.guard_files import GuardedFile, guard_c
from patchkit.config.guard_settle import GuardStep, Terms

TERMS = Terms(module="", needs={}, values={})
needs_unifdef = pytest.mark.skipif(shutil.which("unifdef") is None, reason="unifdef is not installed")
needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def guard(old: bytes, new: bytes) -> GuardedFile:
    return guard_c(old, [GuardStep(symbol="X", content=new)], TERMS)


CASES = {
    "line": (b"int a;\nint b;\nint c;\n", b"int a;\nint d;\nint c;\n", Level.STATEMENT),
    "inserted": (b"int a;\n", b"int a;\nint b;\n", Level.STATEMENT),
    "removed": (b"int a;\nint b;\n", b"int a;\n", Level.STATEMENT),
    "crlf": (b"int a;\r\nint b;\r\n", b"int a;\r\nint c;\r\n", Level.STATEMENT),
    "no newline at the end": (b"int a;\nint b;", b"int a;\nint c;", Level.STATEMENT),
    "directive": (
        b"#if A\nint a;\n#endif\nint b;\n",
        b"#if B\nint a;\n#endif\nint b;\n",
        Level.ENCLOSING,
    ),
    "branch added": (
        b"#ifdef A\nint a;\n#endif\n",
        b"#ifdef A\nint a;\n#else\nint b;\n#endif\n",
        Level.ENCLOSING,
    ),
    "endif moved": (
        b"#ifdef A\nint a;\n#endif\nint b;\n",
        b"#ifdef A\nint a;\nint b;\n#endif\n",
        Level.ENCLOSING,
    ),
    "whole directive": (b"int a;\n", b"int a;\n#ifdef A\nint b;\n#endif\n", Level.STATEMENT),
    "inside a directive": (b"#ifdef A\nint a;\n#endif\n", b"#ifdef A\nint b;\n#endif\n", Level.STATEMENT),
    "macro of several lines": (
        b"#define F(x) \\\n  do { \\\n    g(x); \\\n  } while (0)\nint a;\n",
        b"#define F(x) \\\n  do { \\\n    h(x); \\\n  } while (0)\nint a;\n",
        Level.ENCLOSING,
    ),
    "block comment": (b"/* a\n b\n c */\nint a;\n", b"/* a\n d\n c */\nint a;\n", Level.ENCLOSING),
    "comment marks in a string": (
        b'char* a = "/*";\nint b;\nint c;\n',
        b'char* a = "/*";\nint d;\nint c;\n',
        Level.STATEMENT,
    ),
    "raw string": (
        b'const char* a = R"x(\n#if A\none )" "\n)x";\nint b;\n',
        b'const char* a = R"x(\n#if A\ntwo )" "\n)x";\nint b;\n',
        Level.ENCLOSING,
    ),
    "digit separators": (
        b"int a = 1'000;\n/* b\n c */\nint d;\n",
        b"int a = 1'000;\n/* b\n e */\nint d;\n",
        Level.ENCLOSING,
    ),
    "quote character": (
        b"char a = '\"';\nint b;\nchar c = '\"';\n",
        b"char a = '\"';\nint d;\nchar c = '\"';\n",
        Level.STATEMENT,
    ),
    "line comment that goes on": (b"// a \\\nb\nint c;\n", b"// a \\\nd\nint c;\n", Level.ENCLOSING),
    "two regions that grow into one": (
        b"#if A\nint a;\nint b;\n#else\nint c;\n#endif\n",
        b"#if B\nint a;\nint b;\n#elif C\nint c;\n#endif\n",
        Level.ENCLOSING,
    ),
    "include": (b"#include <stddef.h>\nint a;\n", b"#include <stdint.h>\nint a;\n", Level.STATEMENT),
    "define of several lines changed at its end": (
        b"#define F(x) \\\n  g(x); \\\n  h(x)\nint a;\n",
        b"#define F(x) \\\n  g(x); \\\n  i(x); \\\n  h(x)\nint a;\n",
        Level.ENCLOSING,
    ),
    "elif changed": (
        b"#if A\nint a;\n#elif B\nint b;\n#endif\nint c;\n",
        b"#if A\nint a;\n#elif C\nint b;\n#endif\nint c;\n",
        Level.ENCLOSING,
    ),
    "elif added": (
        b"#if A\nint a;\n#endif\nint c;\n",
        b"#if A\nint a;\n#elif C\nint b;\n#endif\nint c;\n",
        Level.ENCLOSING,
    ),
    "inside nested directives": (
        b"#if A\n#ifdef B\nint a;\n#else\nint b;\n#endif\n#endif\n",
        b"#if A\n#ifdef B\nint a;\n#else\nint c;\nint d;\n#endif\n#endif\n",
        Level.STATEMENT,
    ),
    "a level of nesting less": (
        b"#if A\n#ifdef B\nint a;\n#endif\n#endif\nint c;\n",
        b"#if A\nint a;\n#endif\nint c;\n",
        Level.ENCLOSING,
    ),
    "braces that the branches do not balance": (
        b"void f() {\n  if (a) {\n    g();\n  }\n}\n",
        b"void f() {\n  for (;;) {\n    if (b) {\n    g();\n  }}\n}\n",
        Level.STATEMENT,
    ),
    "crlf and lines that go on": (
        b"#define F(x) \\\r\n  g(x)\r\nint a;\r\n",
        b"#define F(x) \\\r\n  h(x)\r\nint a;\r\n",
        Level.ENCLOSING,
    ),
    "comment begins in the change": (
        b"int a;\nint b;\nint c; /* d */\nint e;\n",
        b"int a;\n/* int b;\nint c; /* d */\nint e;\n",
        Level.ENCLOSING,
    ),
    "comment ends in the change": (
        b"/* a\nb */\nint c;\nint d;\n",
        b"/* a\nb\nint c; */\nint d;\n",
        Level.ENCLOSING,
    ),
    "comment before and in a directive": (
        b"/* a */ #if A\nint a;\n# /* b */ endif\nint b;\n",
        b"/* a */ #if B\nint a;\n# /* b */ endif\nint b;\n",
        Level.ENCLOSING,
    ),
    "directive over two lines": (
        b"#\\\nif A\nint a;\n#en\\\ndif\nint b;\n",
        b"#\\\nif B\nint a;\n#en\\\ndif\nint b;\n",
        Level.ENCLOSING,
    ),
    "digraph": (
        b"%:if A\nint a;\n%:endif\nint b;\n",
        b"%:if B\nint a;\n%:endif\nint b;\n",
        Level.ENCLOSING,
    ),
    "what looks like a trigraph": (b'char* a = "??/";\nint b;\n', b'char* a = "??/";\nint c;\n', Level.STATEMENT),
    "raw string without a mark": (
        b'auto a = R"(\n#endif\n)";\nint b;\n',
        b'auto a = R"(\n#endif\n)";\nint c;\n',
        Level.STATEMENT,
    ),
    "digits of a hexadecimal number": (
        b"int a = 0x1'F'00;\n/* b\n c */\nint d;\n",
        b"int a = 0x1'F'00;\n/* b\n e */\nint d;\n",
        Level.ENCLOSING,
    ),
    "apostrophe in an error": (
        b"#if NEVER\n#error don't\n#endif\nint a; // it's\nint b;\n",
        b"#if NEVER\n#error don't\n#endif\nint a; // it's\nint d;\n",
        Level.STATEMENT,
    ),
    "kernel": (
        b"template <int N>\n__global__ void k(float* a) {\n  a[0] = N;\n}\n",
        b"template <int N>\n__global__ void k(float* __restrict__ a) {\n  a[threadIdx.x] = N;\n}\n",
        Level.STATEMENT,
    ),
}


@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_region_is_as_small_as_may_be(old: bytes, new: bytes, level: Level) -> None:
    guarded = guard(old, new)
    assert guarded.refusals == ()
    assert guarded.compared == 2
    assert max(region.level for region in guarded.regions) == level


def unifdef(content: bytes, *options: str) -> bytes:
    """Return what unifdef leaves. Its status 1 says that it changed something."""
    made = subprocess.run(["unifdef", *options], input=content, stdout=subprocess.PIPE, check=False)
    assert made.returncode in (0, 1)
    return made.stdout


def with_newline(content: bytes) -> bytes:
    ending = b"\r\n" if b"\r\n" in content else b"\n"
    return content if content.endswith(b"\n") else content + ending


@needs_unifdef
@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_unifdef_gives_both_variants_back(old: bytes, new: bytes, level: Level) -> None:
    if any(mark in old for mark in (b'R"', b"1'", b"%:", b"don't", b"#en\\")):
        pytest.skip(
            "unifdef does not know raw strings, digit separators, digraphs, apostrophes of words and split ones"
        )
    content = guard(old, new).content
    assert content is not None
    assert unifdef(content, "-DCONFIG_X=1") == with_newline(new)
    assert unifdef(content, "-UCONFIG_X") == with_newline(old)


def preprocessed(content: bytes, scratch: Path, *options: str) -> bytes:
    source = scratch / "file.cpp"
    source.write_bytes(content)
    made = subprocess.run(["g++", "-E", "-P", "-std=c++17", *options, source], stdout=subprocess.PIPE, check=True)
    return b"\n".join(line.strip() for line in made.stdout.split(b"\n") if line.strip())


@needs_cpp
@pytest.mark.parametrize(("old", "new", "level"), CASES.values(), ids=CASES)
def test_preprocessor_gives_both_variants_back(old: bytes, new: bytes, level: Level, tmp_path: Path) -> None:
    content = guard(old, new).content
    assert content is not None
    for more in (("-DA", "-DC"), ("-DB",)):
        assert preprocessed(content, tmp_path, "-DCONFIG_X=1", *more) == preprocessed(new, tmp_path, *more)
        assert preprocessed(content, tmp_path, *more) == preprocessed(old, tmp_path, *more)


def test_what_is_not_balanced_has_no_guards() -> None:
    (refusal,) = guard(b"int a;\n", b"#if A\nint a;\n").selected
    assert "not balanced" in refusal.reason


def test_several_toggles_and_one_inside_another() -> None:
    old = b"int a;\nint b;\nint c;\n"
    first = old.replace(b"int a;", b"int aa;")
    second = first.replace(b"int aa;", b"int aaa;")
    third = second.replace(b"int c;", b"int cc;")
    steps = [GuardStep(symbol=symbol, content=one) for symbol, one in zip("ABC", (first, second, third), strict=True)]
    guarded = guard_c(old, steps, Terms(module="", needs={"B": frozenset("A")}, values={}))
    assert guarded.refusals == ()
    assert guarded.content is not None
    assert guarded.content.startswith(
        b"#if CONFIG_A\n#if CONFIG_B\nint aaa;\n#else\nint aa;\n#endif\n#else\nint a;\n#endif\n"
    )
    if shutil.which("unifdef"):
        assert unifdef(guarded.content, "-DCONFIG_A=1", "-UCONFIG_B", "-DCONFIG_C=1") == first.replace(b"c;", b"cc;")


def test_an_inverted_guard_is_found() -> None:
    from patchkit.config.guard_c import fold_c
    from patchkit.config.guard_source import read_lines

    for old, new, _ in CASES.values():
        content = guard(old, new).content
        assert content is not None
        mutant = re.sub(
            rb"#if (!?)CONFIG_X", lambda one: b"#if " + (b"" if one.group(1) else b"!") + b"CONFIG_X", content
        )
        assert fold_c(read_lines(mutant), {"X": True}) != read_lines(new)
        assert fold_c(read_lines(mutant), {"X": False}) != read_lines(old)
