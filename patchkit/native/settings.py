"""What the shim is told: the mode and the arguments it changes, as words of the user and as numbers of the segment."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from patchkit.errors import UsageError
from patchkit.native.symbols import HOOKS, EntryPoint
from patchkit.record import dataclass, replace

MODES = ("off", "count", "trace", "transform", "replace")
_LARGEST_COUNT = (1 << 31) - 1
_ARGUMENTS = ("qk_scale", "window", "rope_offset")
_USED_IN = (("transform", (*_ARGUMENTS, "rope_theta")), ("replace", ("every", "tolerance")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the shim does with a call.

    `mode` is one of MODES. transform: `qk_scale` is a factor on the softmax scale, `window` how many keys a query sees
    (0: as called), `rope_offset` turns q by so many positions at base `rope_theta`. replace: every `every`th call is
    compared with the real one (0: none), `tolerance` is the largest difference that is not one.
    """

    mode: str = "count"
    every: int = 100
    qk_scale: float = 1.0
    window: int = 0
    rope_offset: int = 0
    rope_theta: float = 10000.0
    tolerance: float = 1e-4


_FIRST = Settings()


def parse_settings(words: Sequence[str], before: Settings) -> Settings:
    """Read `mode=transform qk_scale=0.5`; what is not named stays. UsageError names the word that is wrong."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in Settings.__slots__:
            names = ", ".join(Settings.__slots__)
            raise UsageError(f"no setting {word!r}", why=f"  NAME=VALUE, NAME one of {names}")
        changes[name] = _value(name, text, getattr(before, name))
    return replace(before, **changes)


def check_settings(settings: Settings, rows: Sequence[EntryPoint], *, named: Collection[str] = ()) -> None:
    """UsageError when the mode, one of its settings or one that is `named` would change nothing at any entry point."""
    if settings.mode not in MODES:
        raise UsageError(f"the mode is {settings.mode[:20]!r}, which nobody knows", hint="say a mode too: mode=count")
    hooks = [HOOKS[row.hook] for row in rows if row.hook in HOOKS]
    names = ", ".join(row.name for row in rows) or "none"
    if settings.mode == "replace" and not any(hook.replaces for hook in hooks):
        raise UsageError("mode=replace: no entry point here can call another kernel", why=f"  entry points: {names}")
    if settings.mode in ("transform", "trace") and not hooks:
        raise UsageError(f"mode={settings.mode} needs a typed stage 2", why=f"  entry points: {names}")
    for name in _ARGUMENTS:
        looked_at = settings.mode == "transform" or name in named
        if looked_at and _is_changed(settings, name) and not any(name in hook.settings for hook in hooks):
            raise UsageError(f"{name} changes nothing here", why=f"  entry points: {names}")


def check_dispatched(settings: Settings) -> None:
    """UsageError for what an operator that is registered anew cannot do: it counts, traces and changes the scale."""
    if settings.mode == "replace":
        raise UsageError("mode=replace is not for operators that are registered anew", hint="--way preload")
    if settings.mode == "transform" and settings.window:
        raise UsageError("window changes nothing at operators that are registered anew", hint="--way preload")


def settings_words(settings: Settings) -> str:
    """Return the mode, and what is not as it is at first; with the mode that it is for where that is another."""
    parts = [f"mode {settings.mode}"]
    for mode, names in _USED_IN:
        for name in names:
            value = getattr(settings, name)
            if _is_changed(settings, name):
                words = f"{name} {value}" if isinstance(value, int) else f"{name} {value:g}"
                parts.append(words if mode == settings.mode else f"{words} (for mode {mode})")
    return ", ".join(parts)


def numbers(settings: Settings) -> tuple[int, ...]:
    """Return the seven whole numbers of struct pk_settings, floating point numbers as their bits."""
    return (
        MODES.index(settings.mode),
        settings.every,
        _bits(settings.qk_scale),
        settings.window & 0xFFFFFFFF,
        settings.rope_offset & 0xFFFFFFFF,
        _bits(settings.rope_theta),
        _bits(settings.tolerance),
    )


def from_numbers(values: Sequence[int]) -> Settings:
    """Return what seven numbers of a segment mean; a mode that nobody knows is shown as its number."""
    mode, every, scale, window, offset, theta, tolerance = values
    return Settings(
        mode=MODES[mode] if mode < len(MODES) else str(mode),
        every=every,
        qk_scale=_number(scale),
        window=_signed(window),
        rope_offset=_signed(offset),
        rope_theta=_number(theta),
        tolerance=_number(tolerance),
    )


def settings_document(settings: Settings) -> Mapping[str, object]:
    """Return settings for JSON; what is no number there (a foreign hand wrote it) as text."""
    values = {name: getattr(settings, name) for name in Settings.__slots__}
    return {name: value if name == "mode" or math.isfinite(value) else str(value) for name, value in values.items()}


def _is_changed(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != getattr(_FIRST, name))


def _value(name: str, text: str, before: object) -> object:
    if name == "mode":
        if text not in MODES:
            raise UsageError(f"no mode {text!r}", why=f"  one of {', '.join(MODES)}")
        return text
    try:
        value = int(text) if isinstance(before, int) else float(text)
    except ValueError:
        raise UsageError(f"{name}={text[:40]!r}", why=f"  expected a {type(before).__name__}") from None
    if not math.isfinite(value) or abs(value) > _LARGEST_COUNT:
        raise UsageError(f"{name}={text[:40]!r} is out of range")
    if (value < 0 and name in ("every", "window", "tolerance")) or (name == "rope_theta" and value <= 0):
        raise UsageError(f"{name}={text[:40]!r} is below its least value")
    return value


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _number(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
