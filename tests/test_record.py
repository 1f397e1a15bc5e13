"""Records behave as the standard frozen, keyword-only, slotted dataclass does: each law is tried on both."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import patchkit.record


class Plain:
    """A record with a default and a property."""

    number: int
    name: str = "none"

    @property
    def double(self) -> int:
        return 2 * self.number


def _fresh() -> type:
    return type("Plain", (), dict(Plain.__dict__))


Ours: Any = patchkit.record.dataclass(frozen=True, kw_only=True, slots=True)(_fresh())
Ours.__qualname__ = "Ours"
Ours.__name__ = "Ours"
Standard: Any = dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(_fresh())
both = pytest.mark.parametrize("record", [Ours, Standard], ids=["ours", "standard"])


@both
def test_fields_are_given_by_keyword_and_defaults_hold(record: Callable[..., Any]) -> None:
    one = record(number=3)
    assert (one.number, one.name, one.double) == (3, "none", 6)
    with pytest.raises(TypeError):
        record(3)
    with pytest.raises(TypeError):
        record(name="x")
    with pytest.raises(TypeError):
        record(number=1, other=2)


@both
def test_a_record_is_frozen_and_has_slots(record: Callable[..., Any]) -> None:
    one = record(number=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.number = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.number
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        one.other = 4
    assert not hasattr(one, "__dict__")


@both
def test_records_compare_and_hash_by_their_fields(record: Callable[..., Any]) -> None:
    assert record(number=3) == record(number=3, name="none")
    assert record(number=3) != record(number=4)
    assert record(number=3) != (3, "none")
    assert len({record(number=3), record(number=3), record(number=4)}) == 2


@both
def test_the_module_dataclasses_takes_a_record_for_one(record: Callable[..., Any]) -> None:
    one = record(number=3)
    assert dataclasses.is_dataclass(type(one))
    assert [(field.name, field.default) for field in dataclasses.fields(one)] == [
        ("number", dataclasses.MISSING),
        ("name", "none"),
    ]
    assert dataclasses.replace(one, name="x") == record(number=3, name="x")
    assert dataclasses.asdict(one) == {"number": 3, "name": "none"}
    with pytest.raises(TypeError):
        dataclasses.replace(one, other=1)


def test_replace_changes_what_it_names_and_refuses_other_names() -> None:
    one = Ours(number=3, name="x")
    assert patchkit.record.replace(one, number=4) == Ours(number=4, name="x")
    assert one.number == 3
    with pytest.raises(TypeError):
        patchkit.record.replace(one, other=1)


def test_a_record_is_copied_and_pickled() -> None:
    one = Ours(number=3, name="x")
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 -- ours


def test_a_record_shows_its_fields() -> None:
    assert repr(Ours(number=3)) == "Ours(number=3, name='none')"


def test_a_record_may_take_its_fields_by_position() -> None:
    positional: Any = patchkit.record.dataclass(frozen=True, slots=True)(_fresh())
    assert positional(3, "x") == positional(number=3, name="x")


def test_other_kinds_of_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="a record is frozen"):
        patchkit.record.dataclass(frozen=False, slots=True)
