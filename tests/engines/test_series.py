"""The shipped series on the releases that they were cut against, by the word of `series lint`."""

from __future__ import annotations

import pytest

from tests.blackbox.command import patchkit
from tests.blackbox.released import UnreachableError, released_tree

pytestmark = [pytest.mark.engines, pytest.mark.network]


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.6.3"), ("sglang", "0.5.1")])
def test_shipped_series_is_proved_on_its_release(engine: str, version: str) -> None:
    try:
        root = released_tree(engine, version)
    except UnreachableError as error:
        pytest.skip(str(error))

    linted = patchkit("series", "lint", f"{engine}/{version}", "--root", root, "--json")

    assert linted.status == 0, linted.said
    (row,) = linted.report["series"]
    assert row["checked_on"] == [str(root)]
    assert row["findings"] == []
