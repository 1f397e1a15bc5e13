"""What every test stands on: an environment of its own, and the checkout."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell that ignores it for us, our children would never be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a developer's shell may hold and a test must not see.
_FOREIGN = (
    "SOURCE_DATE_EPOCH",
    "NO_COLOR",
    "FORCE_COLOR",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "QUILT_PATCHES",
)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give git and our own configuration an empty home, and git a name to commit under."""
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "patchkit tests")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tests@example.invalid")
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Return the root of the checkout that the tests run from."""
    return CHECKOUT
