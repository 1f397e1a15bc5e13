"""The entry points that the shim can stand before: native/shim/symbols.def, the only list of them, as records.

A build takes the rows of one target and writes them out again; the trampolines, the tables of C and the version script
are made from that text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from patchkit.errors import ParseError, UsageError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.specifier import accepts

HOST = "host"
"""The engine of the project's own library, on which the shim runs anywhere."""
NO_HOOK = "none"
MOST_SYMBOLS = 16  # PK_SYMBOLS

_ROW = compile_lazily(
    r'PK_SYMBOL\("(?P<engine>[a-z-]+)", "(?P<releases>[^"]*)", "(?P<object>[^"/]+)", '
    r"(?P<hook>[a-z0-9_]+), (?P<symbol>[A-Za-z_][A-Za-z0-9_]*)\)"
)
_NAME = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]{0,510}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryPoint:
    """A function of a library that the shim can stand before.

    `releases` is a PEP 440 set of its engine ("" for any), `object` a pattern for the library's file name, `hook` the
    stage 2 for it (NO_HOOK: calls are counted, no more), `symbol` the name in the table of dynamic symbols.
    """

    engine: str
    releases: str
    object: str
    hook: str
    symbol: str

    @property
    def name(self) -> str:
        """What people call it."""
        return self.symbol if self.hook == NO_HOOK else self.hook


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """What stage 2 does for an entry point beyond counting and tracing.

    `settings` are the arguments it can change, `replaces` whether it can call another kernel, `operator` the name under
    which torch knows the same function, "" for none.
    """

    settings: tuple[str, ...]
    replaces: bool = False
    operator: str = ""


HOOKS: dict[str, Hook] = {
    "attention_forward": Hook(settings=("qk_scale", "rope_offset", "rope_theta"), replaces=True),
    "paged_attention_v1": Hook(settings=("qk_scale",), replaces=True, operator="_C::paged_attention_v1"),
    "paged_attention_v2": Hook(settings=("qk_scale",), operator="_C::paged_attention_v2"),
    "cpu_attention_with_kv_cache": Hook(
        settings=("qk_scale",), replaces=True, operator="_C::cpu_attention_with_kv_cache"
    ),
    "mha_varlen_fwd_fa2": Hook(
        settings=("qk_scale", "window"), replaces=True, operator="vllm_flash_attn_c::varlen_fwd"
    ),
    "mha_fwd_fa2": Hook(settings=("qk_scale", "window"), replaces=True, operator="vllm_flash_attn_c::fwd"),
    "mha_fwd_fa3": Hook(settings=("qk_scale", "window"), replaces=True, operator="_vllm_fa3_C::fwd"),
}


def read_symbols(native: Path) -> tuple[EntryPoint, ...]:
    """Read the list below the directory of native sources; ParseError names the line that is not a row."""
    source = native / "shim" / "symbols.def"
    found = []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if not line.startswith("PK_SYMBOL"):
            continue
        match = _ROW.fullmatch(line)
        if match is None or match["hook"] not in (NO_HOOK, *HOOKS):
            raise ParseError(
                "not a row of entry points", source=str(source), line_number=number, line=line.encode(errors="replace")
            )
        found.append(EntryPoint(**match.groupdict()))
    return tuple(found)


def entry_points(rows: Iterable[EntryPoint], engine: str, version: str) -> tuple[EntryPoint, ...]:
    """Return the rows for a release of an engine."""
    return tuple(row for row in rows if row.engine == engine and accepts(row.releases, version))


def named_entry_points(names: Sequence[str], engine: str) -> tuple[EntryPoint, ...]:
    """Return rows for symbols that the user names; they are counted, and no more."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} is not a symbol", why="  letters, digits and _", hint="`nm -D LIBRARY` lists them"
            )
    return tuple(EntryPoint(engine=engine, releases="", object="*", hook=NO_HOOK, symbol=name) for name in names)


def symbols_text(rows: Sequence[EntryPoint]) -> str:
    """Return symbols.inc; UsageError when there are more than the segment has room for."""
    if len(rows) > MOST_SYMBOLS:
        raise UsageError(f"{len(rows)} entry points, {MOST_SYMBOLS} is the most", hint="name fewer with --symbol")
    return "".join(
        f'PK_SYMBOL("{row.engine}", "{row.releases}", "{row.object}", {row.hook}, {row.symbol})\n' for row in rows
    )


def version_script(rows: Sequence[EntryPoint]) -> str:
    """Return the linker's version script: stage 1 exports the entry points, its table, what a plugin calls."""
    return (
        "{ global: patchkit_layout_table; patchkit_shim_*; "
        + " ".join(f"{row.symbol};" for row in rows)
        + " local: *; };\n"
    )
