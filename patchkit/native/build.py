"""Builds the shim for one target and keeps it by content: what was built from the same is built once.

Stage 1 is made from C, assembly and the target's entry points; stage 2 from the hooks of those entry points and the
headers of the target's torch. Whatever takes part is in the key: sources, rows, flags, compiler, torch, libraries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from patchkit.errors import RefusedError
from patchkit.native.cache import COMPLETE, check_kept, digest_of, make_cache, scratch_below
from patchkit.native.compiler import (
    HOST_FLAGS,
    LINK_FLAGS,
    STAGE1_FLAGS,
    STAGE2_FLAGS,
    Toolchain,
    compile_with,
)
from patchkit.native.layout import ATTENTION_HEADER, SHIM_HEADER, shared_layout
from patchkit.native.library import Library, read_library
from patchkit.native.manifest import manifest_path, manifest_text
from patchkit.native.plugin import MODULE, plugin_source, write_plugin
from patchkit.native.symbols import HOST, NO_HOOK, EntryPoint, symbols_text, version_script
from patchkit.native.torch_tree import TorchTree
from patchkit.record import dataclass

STAGE1 = "libpatchkit-shim.so"
STAGE2 = "patchkit-stage2.so"
HOST_LIBRARY = "libpatchkit-host.so"
HOST_PROGRAM = "attention-host"
_TABLE = "layout_table.c"
_MACROS = ("ARGUMENTS", "WITH", "WITH_SCALE", "MAYBE")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """What to build: `rows` are the entry points that `libraries` define; no `torch`: hooks that need none."""

    native: Path
    rows: tuple[EntryPoint, ...]
    libraries: tuple[Library, ...]
    torch: TorchTree | None
    toolchain: Toolchain


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildArtifact:
    """What was built: `stage2` is None without a hook; `fresh` is false where all was there already."""

    key: str
    directory: Path
    stage1: Path
    stage2: Path | None
    rows: tuple[EntryPoint, ...]
    commands: tuple[str, ...]
    fresh: bool

    @property
    def plugin(self) -> Path:
        """The directory that holds vLLM's plugin, for PYTHONPATH."""
        return self.directory / "plugin"

    @property
    def program(self) -> Path | None:
        """The small program that is linked with the host library; None in a build for an engine."""
        return self.directory / HOST_PROGRAM if _is_host(self.rows) else None


def build(request: BuildRequest, cache: Path, *, on_start: Callable[[], None] | None = None) -> BuildArtifact:
    """Build what is asked for, or return what was built from the same; RefusedError shows a compiler's words.

    `on_start` is called where something has to be compiled.
    """
    key = _key(request)
    directory = cache / key
    make_cache(cache)
    if (directory / COMPLETE).is_file():
        kept = _artifact(request, key, directory, commands=(), fresh=False)
        check_kept(directory, kept.stage1, kept.stage2, kept.plugin / f"{MODULE}.py")
        return kept
    if on_start is not None:
        on_start()
    with scratch_below(cache, key) as scratch:
        work = Path(scratch) / "build"
        work.mkdir(mode=0o755)
        commands = tuple(_build_in(request, work))
        (work / COMPLETE).write_text(digest_of(work / STAGE1))
        try:
            work.rename(directory)
        except OSError as error:
            if not (directory / COMPLETE).is_file():  # else another build of the same was first
                raise RefusedError(
                    f"{directory} cannot be written", why=f"  {error}", hint="PATCHKIT_NATIVE=DIR names another place"
                ) from error
    return _artifact(request, key, directory, commands=commands, fresh=True)


def _artifact(
    request: BuildRequest, key: str, directory: Path, *, commands: tuple[str, ...], fresh: bool
) -> BuildArtifact:
    stage2 = directory / STAGE2 if _hooked(request) else None
    return BuildArtifact(
        key=key,
        directory=directory,
        stage1=directory / STAGE1,
        stage2=stage2,
        rows=request.rows,
        commands=commands,
        fresh=fresh,
    )


def _hooked(request: BuildRequest) -> tuple[EntryPoint, ...]:
    return tuple(row for row in request.rows if row.hook != NO_HOOK)


def _is_host(rows: tuple[EntryPoint, ...]) -> bool:
    return any(row.engine == HOST for row in rows)


def _build_in(request: BuildRequest, work: Path) -> Iterator[str]:
    """Build everything below a directory; yields the commands."""
    native, tools = request.native, request.toolchain
    include = f"-I{native / 'include'}"
    (work / "symbols.inc").write_text(symbols_text(request.rows))
    (work / "symbols.map").write_text(version_script(request.rows))
    # Before it is read: a compiler that fails is shown with its command.
    header = str(native / "include" / SHIM_HEADER)
    yield compile_with((*tools.cc, "-std=c11", include, "-x", "c", "-fsyntax-only", header), work)
    shared = shared_layout(native, SHIM_HEADER, tools.cc[0])
    (work / _TABLE).write_text(shared.source)
    sources = [
        _TABLE,
        *sorted(map(str, (native / "shim").glob("*.c"))),
        str(native / f"shim/trampoline_{tools.machine}.S"),
    ]
    # -Bsymbolic: its own table of layouts, whoever else exports one.
    script = ("-Wl,--version-script=symbols.map", "-Wl,-Bsymbolic", *LINK_FLAGS, "-ldl", "-pthread")
    yield compile_with(
        (*tools.cc, *STAGE1_FLAGS, "-I.", include, f"-I{native / 'shim'}", "-o", STAGE1, *sources, *script), work
    )
    write_plugin(work / "plugin")
    libraries = list(request.libraries)
    if _is_host(request.rows):
        yield from _build_host(request, work)
        libraries.append(read_library(work / HOST_LIBRARY, ()))
    if _hooked(request):
        yield from _build_stage2(request, work)
        content = (work / STAGE2).read_bytes()
        manifest_path(work / STAGE2).write_text(manifest_text(content, shared.digest, request.torch, libraries))


def _build_host(request: BuildRequest, work: Path) -> Iterator[str]:
    tools, source = request.toolchain, request.native / "host"
    include = f"-I{request.native / 'include'}"
    library = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,--build-id=sha1")
    table = "host_table.c"
    (work / table).write_text(shared_layout(request.native, ATTENTION_HEADER, tools.cc[0]).source)
    yield compile_with(
        (
            *tools.cc,
            *HOST_FLAGS,
            include,
            *library,
            "-o",
            HOST_LIBRARY,
            table,
            str(source / "attention.c"),
            "-lm",
            "-pthread",
        ),
        work,
    )
    found = ("-L.", "-lpatchkit-host", "-Wl,-rpath,$ORIGIN", "-pthread")
    yield compile_with((*tools.cc, *HOST_FLAGS, include, "-o", HOST_PROGRAM, str(source / "program.c"), *found), work)


def _build_stage2(request: BuildRequest, work: Path) -> Iterator[str]:
    """One object for the table, one for all hooks: torch's headers take most of the time and are read once."""
    tools, hooks = request.toolchain, request.native / "hooks"
    rows = _hooked(request)
    (work / "hooks.inc").write_text(symbols_text(rows))
    (work / "hooks.cpp").write_text(_unity(sorted({row.hook for row in rows})))
    include = ("-I.", f"-I{request.native / 'include'}", f"-I{hooks}")
    headers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    if request.torch is not None:
        flag = f"-D_GLIBCXX_USE_CXX11_ABI={int(request.torch.cxx11)}"
        headers = (flag, "-isystem", str(request.torch.headers))
        libraries = (f"-L{request.torch.libraries}", "-lc10", "-ltorch_cpu")
    sources = {"table.o": str(hooks / "table.cpp"), "layout.o": "layout_table.cpp", "hooks.o": "hooks.cpp"}
    (work / "layout_table.cpp").write_text((work / _TABLE).read_text())
    for name, source in sources.items():
        yield compile_with((*tools.cxx, *STAGE2_FLAGS, *include, *headers, "-c", "-o", name, source), work)
    # --allow-shlib-undefined: what torch's libraries need themselves is not ours to find.
    linking = ("-shared", *LINK_FLAGS, "-Wl,--allow-shlib-undefined", "-o", STAGE2, *sources)
    yield compile_with((*tools.cxx, *linking, *libraries, "-ldl"), work)


def _unity(hooks: Sequence[str]) -> str:
    undefined = "".join(f"#undef {name}\n" for name in _MACROS)
    return "".join(f'#include "{hook}.cpp"\n{undefined}' for hook in hooks)


def _key(request: BuildRequest) -> str:
    """Return a digest of everything that takes part in a build."""
    sha = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            sha.update(text.encode() + b"\0")

    tools, torch = request.toolchain, request.torch
    add(symbols_text(request.rows), tools.version, tools.machine, *tools.cc, *tools.cxx)
    add(plugin_source(), *STAGE1_FLAGS, *STAGE2_FLAGS, *LINK_FLAGS, *HOST_FLAGS)
    if torch is not None:
        add(str(torch.directory), torch.version, torch.c10, str(torch.cxx11))
    add(*(f"{library.path.name} {library.identity}" for library in request.libraries))
    for part in ("include", "shim", "hooks", "host"):
        for path in sorted((request.native / part).rglob("*")):
            if path.is_file():
                add(path.relative_to(request.native).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
    return sha.hexdigest()[:20]
