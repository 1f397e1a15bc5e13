"""The tree a patch was cut against, in another layout than the tree it goes onto."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from patchkit.base import open_base
from patchkit.cli.main import run
from patchkit.errors import TargetError
from patchkit.target import TargetTree, find_targets, plain_target
from tests.blackbox.wheels import engine, wheel_tree, write_tree

TWIN = "    def {name}(self):\n        first = 1\n        second = 2\n        third = 3\n        return first\n\n"
CUT_AGAINST = "class Engine:\n" + TWIN.format(name="generate") + TWIN.format(name="stream")
# The release has another method above, which has the same lines too.
RELEASED = "class Engine:\n" + TWIN.format(name="early") + TWIN.format(name="generate") + TWIN.format(name="stream")
DIFF = """\
--- a/python/sglang/twins.py
+++ b/python/sglang/twins.py
@@ -9,5 +9,5 @@
         first = 1
         second = 2
-        third = 3
+        third = 4
         return first
 
"""  # noqa: W293 - a diff's empty context lines are a blank


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installed sglang."""
    files = engine("sglang", "0.1.3", twins=RELEASED.encode())
    return write_tree(tmp_path / "site-packages", wheel_tree("sglang", "0.1.3", files, installer="pip"))


@pytest.fixture
def installed(site: Path) -> TargetTree:
    (tree,) = find_targets(root=site)
    return tree


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of another commit, with its package below python/."""
    files = {f"python/{path}": content for path, content in engine("sglang", twins=CUT_AGAINST.encode()).items()}
    return write_tree(tmp_path / "checkout", files | {"python/pyproject.toml": b"", "test/twins.py": b""})


@pytest.mark.parametrize("given", [".", "python", "python/sglang"])
def test_checkout_is_seen_with_the_paths_of_an_installed_tree(
    installed: TargetTree, checkout: Path, given: str
) -> None:
    base = open_base(checkout / given, installed)
    assert base[PurePosixPath("sglang/twins.py")].content == CUT_AGAINST.encode()
    assert base.get(PurePosixPath("sglang/absent.py")) is None
    assert base.get(PurePosixPath("test/twins.py")) is None
    assert PurePosixPath("sglang/twins.py") in set(base)
    assert len(base) == len(set(base))


def test_installed_tree_is_seen_with_the_paths_of_a_checkout(site: Path, checkout: Path) -> None:
    (tree,) = find_targets(root=checkout)
    base = open_base(site, tree)
    assert base[PurePosixPath("python/sglang/twins.py")].content == RELEASED.encode()
    assert base.get(PurePosixPath("sglang/twins.py")) is None


def test_base_of_the_same_layout_may_hold_a_few_files_only(installed: TargetTree, tmp_path: Path) -> None:
    base = open_base(write_tree(tmp_path / "few", {"sglang/twins.py": b"few\n"}), installed)
    assert base[PurePosixPath("sglang/twins.py")].content == b"few\n"


def test_base_without_the_package_is_refused_and_says_what_to_give(installed: TargetTree, tmp_path: Path) -> None:
    write_tree(tmp_path / "other", wheel_tree("vllm", "0.1.0", engine()))
    with pytest.raises(TargetError) as refusal:
        open_base(tmp_path / "other", installed)
    assert "has no sglang/" in str(refusal.value)
    assert "checkout" in (refusal.value.hint or "")


def test_plain_tree_takes_any_directory_as_base(tmp_path: Path) -> None:
    write_tree(tmp_path / "base", {"a.txt": b"a\n"})
    assert open_base(tmp_path / "base", plain_target(tmp_path))[PurePosixPath("a.txt")].content == b"a\n"


def test_checkout_as_base_proves_the_scope_of_a_hunk_that_fits_in_three_methods(
    site: Path, checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    patch = tmp_path / "twins.diff"
    patch.write_text(DIFF)
    asked = ["--root", str(site), "--patch", str(patch)]
    shifted = write_tree(site, {"sglang/twins.py": b"import os\n\n" + RELEASED.encode()}) / "sglang/twins.py"
    assert run(["plan", *asked]) == 1
    assert "ambiguous" in "".join(capfd.readouterr())
    assert run(["apply", *asked, "--base", str(checkout)]) == 0
    before, _, stream = shifted.read_text().partition("def stream")
    assert "third = 4" in stream
    assert "third = 4" not in before
