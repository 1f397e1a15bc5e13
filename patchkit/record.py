"""`dataclass` and `replace` for records, with the meaning of the standard ones and a seventh of the cost.

A command loads some seventy records. The standard decorator compiles six functions for each (on Python 3.11 that was a
third of the start of `patchkit apply`); this one compiles one `__init__` for all kinds with as many fields, and shares
the rest. What `dataclasses.fields`, `replace` and `is_dataclass` need is made when they ask for it. For a type checker
it is the standard one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 -- exported
    from dataclasses import replace as replace  # noqa: PLC0414
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class a record: frozen, with slots; other kinds are for the standard decorator."""
        if not (frozen and slots):
            raise TypeError("a record is frozen and has slots")
        return lambda plain: _make_record(plain, "*, " if kw_only else "")

    def replace(record: Any, /, **changes: Any) -> Any:
        """Return a record like this one, but for some fields."""
        return record.__class__(**{**dict(zip(record.__slots__, _values(record), strict=True)), **changes})


def _make_record(plain: type, keywords: str) -> type:
    names = tuple(plain.__annotations__)
    space = {name: value for name, value in plain.__dict__.items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: space.pop(name) for name in names if name in space}
    record = type(plain)(plain.__name__, plain.__bases__, {**space, "__slots__": names, **_SHARED})
    record.__record_defaults__ = defaults  # type: ignore[attr-defined]
    record.__record_values__ = _reader(names)  # type: ignore[attr-defined]
    record.__init__ = _make_init(record, defaults, keywords)  # type: ignore[misc]
    return record


def _make_init(record: Any, defaults: dict[str, Any], keywords: str) -> FunctionType:
    """Return `__init__`: what was compiled for the first kind with as many fields, under the names of these."""
    names = record.__slots__
    code = _compiled_init(len(names), keywords if names else "").replace(co_varnames=("self", *names))
    setters = {f"set{place}": record.__dict__[name].__set__ for place, name in enumerate(names)}
    made = FunctionType(code, setters)
    if keywords:
        made.__kwdefaults__ = defaults
    else:
        made.__defaults__ = tuple(defaults.values())
    made.__qualname__ = f"{record.__qualname__}.__init__"
    return made


@cache
def _compiled_init(count: int, keywords: str) -> CodeType:
    arguments = ", ".join(f"v{place}" for place in range(count))
    lines = [f"def __init__(self, {keywords}{arguments}):"]
    lines += [f" set{place}(self, v{place})" for place in range(count)] or [" pass"]
    made: dict[str, FunctionType] = {}
    exec("\n".join(lines), made)  # noqa: S102 -- made of two numbers
    return made["__init__"].__code__


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads all fields at once; attrgetter gives a tuple from two names on."""
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(lambda self: tuple(getattr(self, name) for name in names))


def _values(self: Any) -> tuple[Any, ...]:
    values: tuple[Any, ...] = self.__record_values__(self)
    return values


def _equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in zip(self.__slots__, _values(self), strict=True))
    return f"{self.__class__.__qualname__}({fields})"


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r} of {self.__class__.__name__}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuild, (self.__class__, dict(zip(self.__slots__, _values(self), strict=True)))


def _rebuild(record: type, fields: dict[str, Any]) -> object:
    return record(**fields)


class _Fields:
    """What the module dataclasses looks for on a class, made when it first looks."""

    def __get__(self, _: object, owner: type) -> dict[str, Any]:
        import dataclasses

        defaults = owner.__record_defaults__  # type: ignore[attr-defined]
        blueprint = dataclasses.make_dataclass(
            owner.__name__,
            [
                (name, kind, dataclasses.field(default=defaults[name]) if name in defaults else dataclasses.field())
                for name, kind in owner.__annotations__.items()
            ],
            kw_only=True,
        )
        fields: dict[str, Any] = blueprint.__dataclass_fields__  # type: ignore[attr-defined]
        owner.__dataclass_fields__ = fields  # type: ignore[attr-defined]
        return fields


_SHARED = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__reduce__": _reduce,
    "__dataclass_fields__": _Fields(),
}
