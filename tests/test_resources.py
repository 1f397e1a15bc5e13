from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import RefusedError
from patchkit.resources import native_directory, patches_directory


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "patchkit"
    package.mkdir()
    return package


def test_checkout_has_them_beside_the_package(package: Path) -> None:
    (package.parent / "pyproject.toml").touch()
    for name in ("patches", "native"):
        (package.parent / name).mkdir()
    assert patches_directory(package) == package.parent / "patches"
    assert native_directory(package) == package.parent / "native"


def test_installed_package_has_them_inside(package: Path) -> None:
    for name in ("patches", "native"):
        (package / "_resources" / name).mkdir(parents=True)
        (package.parent / name).mkdir()  # of another distribution
    (package.parent / "pyproject.toml").touch()
    assert patches_directory(package) == package / "_resources" / "patches"
    assert native_directory(package) == package / "_resources" / "native"


def test_directory_of_another_distribution_is_not_taken(package: Path) -> None:
    (package.parent / "patches").mkdir()
    with pytest.raises(RefusedError, match="patches/ is missing") as caught:
        patches_directory(package)
    assert str(package / "_resources" / "patches") in caught.value.why


def test_this_checkout_answers_with_its_own_patches(checkout: Path) -> None:
    if not (checkout / "patches").is_dir():
        pytest.skip("this checkout has no patches/")
    assert patches_directory() == checkout / "patches"
