from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchkit.errors import RefusedError, SeriesError
from patchkit.resources import named_directories, native_directory, patches_directory, user_directories


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


def test_nearest_pyproject_above_is_taken_and_names_from_where_it_lies(tmp_path: Path) -> None:
    work = tmp_path / "src" / "deep"
    work.mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\npatches = ["mine"]\n')
    assert user_directories(work) == (tmp_path / "mine",)

    (tmp_path / "src" / "pyproject.toml").write_text("[project]\n")
    assert user_directories(work) == ()


def test_directory_that_is_yet_to_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\npatches = ["mine"]\n')

    assert named_directories(tmp_path) == (tmp_path / "mine",)
    with pytest.raises(SeriesError, match="no directory"):
        user_directories(tmp_path)


def test_pyproject_that_is_no_file_names_no_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")  # to read it would wait for ever
    assert user_directories(tmp_path) == ()


def test_directories_of_the_user_come_from_pyproject(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.patchkit]\npatches = ["mine", "theirs"]\n')

    assert user_directories(tmp_path) == (tmp_path / "mine", tmp_path / "theirs")


@pytest.mark.parametrize("text", [None, "[project]\nname = 'x'\n", "# patchkit\n", "[tool.patchkit]\n", "not toml"])
def test_without_the_table_there_are_no_directories(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)

    assert user_directories(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.patchkit]\npatches = 'mine'\n", "patches is malformed"),
        ("[tool.patchkit]\npatches = [1]\n", "patches is malformed"),
        ("[tool]\npatchkit = 3\n", "patches is malformed"),
        ("tool = 'patchkit'\n", "not TOML|malformed"),
        ("[tool.patchkit\n", "not TOML"),
        ("[tool.patchkit]\npatches = ['gone']\n", "no directory .*/gone\n"),
    ],
)
def test_malformed_table_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(SeriesError, match=message):
        user_directories(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_pyproject_above_of_another_user_is_refused(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    source = tmp_path / "pyproject.toml"
    source.write_text("[tool.patchkit]\npatches = ['own']\n")
    os.chown(source, 12345, -1)
    with pytest.raises(SeriesError, match="belongs to another user"):
        named_directories(below)
    assert named_directories(tmp_path) == (tmp_path / "own",)
    source.write_text("[tool.other]\n")
    assert named_directories(below) == ()
