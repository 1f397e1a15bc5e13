"""From the names in a patch to paths of a tree: every shape that people bring, and the names that are never written."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from patchkit.diff.parse import parse_patch
from patchkit.errors import RefusedError, UnsafePathError
from patchkit.strip import file_paths, find_map, outside_note, safe_path, strip_name
from patchkit.target import Layout, TargetTree
from tests.making import target

SGLANG = frozenset({"sglang/srt/x.py", "sglang/bench_serving.py", "sglang/srt/layers/norm.py", "sglang/__init__.py"})
VLLM = frozenset({"vllm/x.py", "vllm/entrypoints/llm.py", "vllm/config.py"})
SOURCE = frozenset({f"python/{path}" for path in SGLANG} | {"test/srt/x.py", "README.md"})
WHEEL, CHECKOUT = target("sglang", "0.5.1"), target("sglang", "0.5.1", Layout.SOURCE)
VLLM_WHEEL = target("vllm", "0.6.3", Layout.PIP)


def one(old: str, new: str | None = None, *, git: bool = False) -> str:
    new = old if new is None else new
    head = f"diff --git {old} {new}\n" if git else ""
    return f"{head}--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n"


def created(name: str, *, git: bool = True) -> str:
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n" if git else ""
    return f"{head}--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+b\n"


def paths(text: str, tree: TargetTree, files: frozenset[str], *, strip: int | None = None) -> list[tuple[str, str]]:
    def exists(path: str) -> bool:
        return str(PurePosixPath(path)) in files

    patch = parse_patch(text.encode("utf-8", "surrogateescape"), source="p.diff")
    path_map = find_map(patch, tree, exists, strip=strip)
    return [file_paths(file, path_map, exists) for file in patch.files]


def modified(*names: str) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


SHAPES = {
    "as the repository has it": (one("a/python/sglang/srt/x.py", "b/python/sglang/srt/x.py", git=True), WHEEL),
    "as the wheel has it": (one("a/sglang/srt/x.py", "b/sglang/srt/x.py", git=True), WHEEL),
    "without prefix": (one("python/sglang/srt/x.py"), WHEEL),
    "without prefix and parent": (one("sglang/srt/x.py"), WHEEL),
    "no-prefix of git": (one("python/sglang/srt/x.py", git=True), WHEEL),
    "mnemonic work tree": (one("i/python/sglang/srt/x.py", "w/python/sglang/srt/x.py", git=True), WHEEL),
    "mnemonic index": (one("c/python/sglang/srt/x.py", "i/python/sglang/srt/x.py", git=True), WHEEL),
    "package-relative": (one("a/srt/x.py", "b/srt/x.py", git=True), WHEEL),
    "below srt": (one("a/layers/norm.py", "b/layers/norm.py"), WHEEL),
    "absolute": (one("/usr/local/lib/python3.12/dist-packages/sglang/srt/x.py"), WHEEL),
    "absolute behind a/": (
        one(
            "a/opt/venv/lib/python3.11/site-packages/sglang/srt/x.py",
            "b/opt/venv/lib/python3.11/site-packages/sglang/srt/x.py",
            git=True,
        ),
        WHEEL,
    ),
    "two checkouts": (one("sglang.orig/python/sglang/srt/x.py", "sglang/python/sglang/srt/x.py"), WHEEL),
    "above and here": (one("../../../sglang/python/sglang/srt/x.py", "./srt/x.py"), WHEEL),
    "absolute and repository": (
        one("/usr/lib/python3/dist-packages/sglang/srt/x.py", "b/python/sglang/srt/x.py"),
        WHEEL,
    ),
    "backup beside it": (one("python/sglang/srt/x.py.orig", "python/sglang/srt/x.py"), WHEEL),
    "dots in between": (one("a/./sglang/srt/x.py", "b/./sglang/srt/x.py"), WHEEL),
    "double slashes": (one("a//python/sglang//srt/x.py", "b//python/sglang//srt/x.py"), WHEEL),
}


@pytest.mark.parametrize(("text", "tree"), SHAPES.values(), ids=SHAPES)
def test_name_is_found_in_an_installed_tree(text: str, tree: TargetTree) -> None:
    files = SGLANG
    expected = "sglang/srt/layers/norm.py" if "norm" in text else "sglang/srt/x.py"
    assert paths(text, tree, files) == modified(expected)


@pytest.mark.parametrize(
    "text",
    [
        one("a/python/sglang/srt/x.py", "b/python/sglang/srt/x.py", git=True),
        one("a/sglang/srt/x.py", "b/sglang/srt/x.py", git=True),
        one("sglang/srt/x.py"),
        one("a/srt/x.py", "b/srt/x.py"),
        one("/usr/local/lib/python3.12/dist-packages/sglang/srt/x.py"),
    ],
    ids=["repository", "wheel", "bare", "package-relative", "absolute"],
)
def test_name_is_found_in_a_checkout(text: str) -> None:
    assert paths(text, CHECKOUT, SOURCE) == modified("python/sglang/srt/x.py")


@pytest.mark.parametrize("strip", [1, 2, 3])
def test_strip_given_on_an_installed_tree_finds_the_prefix(strip: int) -> None:
    name = {1: "a/sglang/srt/x.py", 2: "a/python/sglang/srt/x.py", 3: "a/python/sglang/srt/x.py"}[strip]
    assert paths(one(name), WHEEL, SGLANG, strip=strip) == modified("sglang/srt/x.py")


def test_strip_given_for_a_checkout_leaves_other_files_where_they_are() -> None:
    text = one("a/python/sglang/srt/x.py") + one("a/test/srt/x.py")
    assert paths(text, CHECKOUT, SOURCE, strip=1) == modified("python/sglang/srt/x.py", "test/srt/x.py")


PULL_REQUEST = "".join(
    [
        one("a/python/sglang/srt/x.py", "b/python/sglang/srt/x.py", git=True),
        one("a/test/srt/x.py", "b/test/srt/x.py", git=True),
        one("a/docs/x.md", "b/docs/x.md", git=True),
        one("a/sgl-kernel/csrc/x.cu", "b/sgl-kernel/csrc/x.cu", git=True),
        one("a/python/pyproject.toml", "b/python/pyproject.toml", git=True),
        one("a/benchmark/sglang/bench_serving.py", "b/benchmark/sglang/bench_serving.py", git=True),
        created("python/sglang/srt/new.py"),
        created("test/srt/new.py"),
        created("benchmark/sglang/new.py"),
    ]
)


def test_pull_request_on_a_wheel_maps_what_the_package_has_and_nothing_else() -> None:
    outside = ("", "")
    assert [pair if pair[1].startswith("sglang/") else outside for pair in paths(PULL_REQUEST, WHEEL, SGLANG)] == [
        ("sglang/srt/x.py", "sglang/srt/x.py"),
        outside,
        outside,
        outside,
        outside,
        outside,
        ("", "sglang/srt/new.py"),
        outside,
        outside,
    ]


def test_pull_request_on_a_checkout_keeps_every_name() -> None:
    found = paths(PULL_REQUEST, CHECKOUT, SOURCE)
    assert [new for _, new in found] == [
        "python/sglang/srt/x.py",
        "test/srt/x.py",
        "docs/x.md",
        "sgl-kernel/csrc/x.cu",
        "python/pyproject.toml",
        "benchmark/sglang/bench_serving.py",
        "python/sglang/srt/new.py",
        "test/srt/new.py",
        "benchmark/sglang/new.py",
    ]


@pytest.mark.parametrize("more", [1, 3])
def test_new_files_of_a_look_alike_are_outside(more: int) -> None:
    text = created("python/sglang/srt/new.py") + "".join(created(f"benchmark/sglang/{n}.py") for n in range(more))
    assert paths(text, WHEEL, SGLANG) == [("", "sglang/srt/new.py")] + [("", "")] * more


@pytest.mark.parametrize(
    ("name", "tree", "expected"),
    [
        ("python/sglang/srt/new.py", WHEEL, "sglang/srt/new.py"),
        ("sglang/srt/new.py", WHEEL, "sglang/srt/new.py"),
        ("vllm/deep/new.py", VLLM_WHEEL, "vllm/deep/new.py"),
        ("python/sglang/srt/new.py", CHECKOUT, "python/sglang/srt/new.py"),
        ("sglang/srt/new.py", CHECKOUT, "python/sglang/srt/new.py"),
        ("test/srt/new.py", CHECKOUT, "test/srt/new.py"),
        ("docs/new.md", target("vllm", "0.6.3", Layout.SOURCE), "docs/new.md"),
        ("new.py", target(), "new.py"),
        ("deep/new.py", target(), "deep/new.py"),
    ],
)
def test_patch_that_only_creates_goes_where_its_name_says(name: str, tree: TargetTree, expected: str) -> None:
    assert paths(created(name), tree, frozenset()) == [("", expected)]


def test_new_files_beside_each_other_in_a_checkout_all_find_their_place() -> None:
    text = created("python/sglang/srt/new.py") + created("test/srt/new.py")
    assert paths(text, CHECKOUT, frozenset()) == [("", "python/sglang/srt/new.py"), ("", "test/srt/new.py")]


def test_names_that_are_not_in_an_engine_are_outside_of_it() -> None:
    [(_, new)] = paths(one("a/unknown/x.py", "b/unknown/x.py", git=True), VLLM_WHEEL, VLLM)
    assert not new.startswith("vllm/")


def test_names_that_are_not_in_a_plain_tree_are_refused_with_a_hint() -> None:
    with pytest.raises(RefusedError, match=r"no file that it changes") as refused:
        paths(one("some/x.py"), target(), frozenset({"other.py"}))
    assert "--strip" in refused.value.hint


@pytest.mark.parametrize("name", ["tests/config.py", "benchmarks/x.py", "tests/entrypoints/llm.py"])
def test_file_of_the_same_name_elsewhere_is_not_the_packages(name: str) -> None:
    [(_, new)] = paths(one(f"a/{name}", f"b/{name}", git=True), VLLM_WHEEL, VLLM)
    assert not new.startswith("vllm/")


def test_copy_of_the_package_is_taken_for_it() -> None:
    assert paths(one("vllm.orig/config.py", "vllm.new/config.py"), VLLM_WHEEL, VLLM) == modified("vllm/config.py")


def test_name_that_two_prefixes_find_is_refused() -> None:
    with pytest.raises(RefusedError, match="several ways"):
        paths(one("a/layers/x.py"), WHEEL, frozenset({"sglang/layers/x.py", "sglang/srt/layers/x.py"}))


def test_git_names_that_are_not_in_a_plain_tree_are_taken_at_their_word() -> None:
    assert paths(one("a/some/x.py", "b/some/x.py", git=True), target(), frozenset()) == modified("some/x.py")


def test_names_that_fit_in_two_ways_are_refused_and_both_are_said() -> None:
    with pytest.raises(RefusedError, match="several ways") as refused:
        paths(one("deep/x.py"), target(), frozenset({"deep/x.py", "x.py"}))
    assert "-p0" in refused.value.why
    assert "-p1" in refused.value.why


def test_the_usual_strip_level_wins_over_a_deeper_one() -> None:
    text = one("a/deep/x.py", "b/deep/x.py")
    assert paths(text, target(), frozenset({"deep/x.py", "x.py"})) == modified("deep/x.py")


@pytest.mark.parametrize("strip", [0, 1])
def test_strip_given_settles_what_is_ambiguous(strip: int) -> None:
    expected = ("deep/x.py", "x.py")[strip]
    assert paths(one("deep/x.py"), target(), frozenset({"deep/x.py", "x.py"}), strip=strip) == modified(expected)


UNSAFE = (
    *("../x.py", "deep/../../x.py", "/etc/passwd", ".git/config", "deep/.GIT/hooks/x", ".patchkit/vllm/x"),
    *("", "./", "x\ny", "x\0y", ".git /x", ".git./x"),
)


@pytest.mark.parametrize("name", UNSAFE)
def test_name_that_is_never_written_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsafePathError) as refused:
        safe_path(name, shown=name)
    assert repr(name) in refused.value.what
    assert refused.value.why


@pytest.mark.parametrize("name", ["a b/c.py", "caf\xe9.py", "\udcff.py", ".gitignore", ".github/x.yml", "a/..b", "-x"])
def test_odd_name_is_a_path_like_any_other(name: str) -> None:
    assert str(safe_path(name, shown=name)) == name


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (created("../../etc/cron.d/x"), target()),
        (created("sglang/../../x.py"), WHEEL),
        (created(".git/hooks/post-checkout"), target()),
    ],
    ids=["create above", "through the package", "git hook"],
)
def test_patch_with_an_unsafe_name_is_refused_whole(text: str, tree: TargetTree) -> None:
    with pytest.raises(UnsafePathError):
        paths(text, tree, frozenset({"x.py"}))


def test_name_above_the_tree_is_refused_when_strip_says_so() -> None:
    with pytest.raises(UnsafePathError, match="leaves the tree"):
        paths(one("a/../x.py", "b/../x.py", git=True), target(), frozenset({"x.py"}), strip=1)


def test_absolute_name_with_strip_given_is_refused() -> None:
    with pytest.raises(UnsafePathError, match="absolute"):
        paths(one("/etc/passwd"), target(), frozenset({"etc/passwd"}), strip=0)


@pytest.mark.parametrize(
    ("name", "components", "split"),
    [
        ("a/b/c", 0, ("", "a/b/c")),
        ("a/b/c", 1, ("a/", "b/c")),
        ("a//b/c", 1, ("a//", "b/c")),
        ("/a/b", 1, ("/", "a/b")),
        ("a/b/c", 2, ("a/b/", "c")),
        ("a/b/c", 3, None),
        ("a/", 1, None),
    ],
)
def test_components_are_counted_as_gnu_patch_does(name: str, components: int, split: tuple[str, str] | None) -> None:
    assert strip_name(name, components) == split


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("a/tests/test_x.py", "harmless"),
        ("b/docs/index.md", "harmless"),
        ("a/csrc/attention.cu", "needs a build"),
        ("a/CMakeLists.txt", "needs a build"),
        ("a/sgl-kernel/python/x.py", "needs a build"),
        ("rust/src/lib.rs", "needs a build"),
        ("a/python/pyproject.toml", "reinstall"),
        ("a/setup.py", "reinstall"),
        ("a/requirements/common.txt", "reinstall"),
        ("requirements-cuda.txt", "reinstall"),
    ],
)
def test_what_it_means_to_be_outside_is_said(name: str, note: str) -> None:
    assert note in outside_note(name)


def test_chosen_mapping_is_said_in_words() -> None:
    patch = parse_patch(one("../../../sglang/python/sglang/srt/x.py", "./srt/x.py").encode(), source="p")
    assert find_map(patch, WHEEL, SGLANG.__contains__, strip=None).words == "-p6/-p0, below sglang/"


def test_rename_with_one_end_outside_is_not_in_the_tree() -> None:
    names = "a/python/sglang/srt/x.py b/test/x.py"
    text = f"diff --git {names}\nsimilarity index 100%\nrename from python/sglang/srt/x.py\nrename to test/x.py\n"
    [pair] = paths(text, WHEEL, SGLANG)
    assert not pair[1].startswith("sglang/")


@pytest.mark.parametrize(("written", "found"), [("old/", "old/"), ("", "")])
def test_rename_at_p0_keeps_what_its_own_lines_name(written: str, found: str) -> None:
    """git's `--no-prefix` of a directory called `old`, and a rename from below the sides `old/` and `new/`."""
    moved = f"rename from {written}x.py\nrename to {written.replace('old', 'new')}x.py\n"
    text = f"diff --git old/x.py new/x.py\nsimilarity index 100%\n{moved}"
    pair = (f"{found}x.py", f"{found.replace('old', 'new')}x.py")
    assert paths(text, target(), frozenset({"old/x.py", "x.py"}), strip=0) == [pair]
