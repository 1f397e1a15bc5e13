"""An interpreter's environment: its site directories and the distributions there, read without importing anything.

Everything read here was written by somebody else's installer and may be damaged: sizes are capped, nothing is run, and
what cannot be read counts as absent.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.engine import normalise_name
from patchkit.errors import TargetError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SITE_NAMES = ("site-packages", "dist-packages")
_SMALL = 1 << 18
_ASK_SECONDS = 60.0
_PYTHON_DIRECTORY = compile_lazily(r"(?:python|pypy)(3\.[0-9]+)t?")
_PLAIN = compile_lazily(r"[0-9A-Za-z.+!_ -]{1,100}")
# Runs in the other interpreter, with -I: nothing of the user's is imported. Python 3.6 understands it.
_QUESTION = """
import json, site, sys, sysconfig
paths = list(sys.path) + [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
if hasattr(site, "getsitepackages"): paths += site.getsitepackages()
if sys.prefix == sys.base_prefix: paths.append(site.getusersitepackages())
print(json.dumps({"version": "%d.%d" % sys.version_info[:2], "paths": paths}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Where an interpreter looks for distributions, in its order. `python` is None and `version` "" when unknown."""

    sites: tuple[Path, ...]
    python: Path | None
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A distribution in a site directory, as its metadata says.

    `name` is normalised; `version` is "" when nothing says it; `directory` is the dist-info directory's name ("" for
    egg-info and egg-link); `installer` is what INSTALLER says, "" without one. `editable` is the checkout that
    direct_url.json or an egg-link names. `evidence` says where the version was read.
    """

    name: str
    version: str
    directory: str
    site: Path
    installer: str
    editable: Path | None
    damaged: bool
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What a site directory holds of the wanted distributions. `leftovers` are directories that pip left behind."""

    path: Path
    distributions: tuple[Distribution, ...]
    leftovers: tuple[str, ...]


def running_environment() -> Environment:
    """Return the environment that patchkit itself runs in."""
    return Environment(
        sites=_existing_sites(sys.path),
        python=Path(sys.executable) if sys.executable else None,
        version="{}.{}".format(*sys.version_info[:2]),
    )


def interpreter_environment(python: Path) -> Environment:
    """Ask an interpreter for its environment: in a child process, unless it is the one that runs us."""
    executable = _find_executable(python)
    if _is_running_interpreter(executable):
        return running_environment()
    import json

    from patchkit.process import require_success, run_child

    asked = run_child([str(executable), "-I", "-c", _QUESTION], timeout=_ASK_SECONDS)
    answer = require_success(asked, hint="--python takes a Python 3 interpreter").stdout
    try:
        told = json.loads(answer.strip().rpartition(b"\n")[2])  # a sitecustomize may have talked before
        paths, version = [str(path) for path in told["paths"]], str(told["version"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TargetError(
            f"{python} does not answer as a Python interpreter", why=f"  it said {answer[:80]!r}", hint="check --python"
        ) from error
    return Environment(sites=_existing_sites(paths), python=executable, version=version)


def owner_of(site: Path) -> tuple[Path | None, str]:
    """Return the interpreter that a site directory belongs to and its version, by the place of the directory alone."""
    library = site.parent
    match = _PYTHON_DIRECTORY.fullmatch(library.name)
    if site.name not in SITE_NAMES or library.parent.name not in ("lib", "lib64"):
        return None, ""
    prefix = library.parent.parent
    version = match[1] if match else ""
    # Debian's pip installs for /usr/bin's interpreter below /usr/local.
    prefixes = (prefix, prefix.parent) if prefix.name == "local" and site.name == "dist-packages" else (prefix,)
    for directory in prefixes:
        for name in (f"python{version}", "python3", "python") if version else ("python3",):
            if (python := directory / "bin" / name).is_file():
                return python, version
    return None, version


def prefix_sites(prefix: Path) -> tuple[Path, ...]:
    """Return the site directories of a virtual or conda environment given by its directory, else ()."""
    if not ((prefix / "pyvenv.cfg").is_file() or (prefix / "conda-meta").is_dir()):
        return ()
    found = [site for library in ("lib", "lib64") for site in sorted((prefix / library).glob("python3*/site-packages"))]
    return _distinct(found)


def scan_site(site: Path, wanted: Collection[str]) -> Site:
    """Read the distributions with the wanted names (normalised) from one listing of the directory."""
    found: list[Distribution] = []
    leftovers: list[str] = []
    for name in sorted(directory_names(site)):
        stem, dot, kind = name.rpartition(".")
        if not dot or kind not in ("dist-info", "egg-info", "egg-link"):
            continue
        project, _, version = stem.partition("-") if kind == "egg-info" else stem.rpartition("-")
        project = normalise_name(project if kind != "egg-link" else stem)
        if name.startswith("~"):
            leftovers += [name] if any(project.lstrip("~-") == other[1:] for other in wanted) else []
        elif project in wanted:
            found.append(_read_distribution(site, name, kind=kind, project=project, version=version))
    return Site(path=site, distributions=tuple(found), leftovers=tuple(leftovers))


def directory_names(directory: Path) -> list[str]:
    """Return the names in a directory, none when it cannot be listed."""
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are all that is needed, of thousands
    except (OSError, ValueError):
        return []


def read_small(path: Path, *, limit: int = _SMALL) -> str | None:
    """Return the beginning of a text file, None when there is none. A link is followed: uv may link its cache."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        return os.read(fd, limit).decode("utf-8", "replace") if regular else None
    except OSError:
        return None
    finally:
        os.close(fd)


def read_headers(path: Path) -> dict[str, str] | None:
    """Return the headers of METADATA or PKG-INFO by lower-case name (the first of each), None when unreadable."""
    text = read_small(path)
    if text is None:
        return None
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            break
        if colon and not line[0].isspace():
            headers.setdefault(name.lower(), value.strip())
    return headers


def is_conda_package(site: Path, distribution: Distribution) -> bool:
    """Tell whether the conda environment around a site directory names the distribution as a package of its own."""
    if distribution.installer == "conda":
        return True
    meta = site.parent.parent.parent / "conda-meta"
    start = f"{distribution.name}-{distribution.version}-"
    return any(name.endswith(".json") and name.replace("_", "-").startswith(start) for name in directory_names(meta))


def _read_distribution(site: Path, name: str, *, kind: str, project: str, version: str) -> Distribution:
    directory = site / name
    if kind == "egg-link":
        lines = (read_small(directory) or "").splitlines()
        checkout = site / lines[0].strip() if lines else None
        return Distribution(
            name=project,
            version="",
            directory="",
            site=site,
            installer="pip",
            editable=checkout,
            damaged=False,
            evidence=name,
        )
    file = "METADATA" if kind == "dist-info" else "PKG-INFO"
    headers = read_headers(directory / file)
    if headers is None and kind == "egg-info":
        headers = read_headers(directory)
    stated = _plain((headers or {}).get("version", ""))
    return Distribution(
        name=project,
        version=stated or _plain(version if kind == "dist-info" else version.partition("-py")[0]),
        directory=name if kind == "dist-info" else "",
        site=site,
        installer=_plain((read_small(directory / "INSTALLER") or "").strip().lower()),
        editable=_direct_url(directory),
        damaged=not stated,
        evidence=f"{name}/{file}" if stated else f"the name of {name} (its {file} says no version)",
    )


def _plain(text: str) -> str:
    """Return a word that may be shown on a terminal and compared, "" for anything else."""
    return text if _PLAIN.fullmatch(text) else ""


def _direct_url(directory: Path) -> Path | None:
    """Return the checkout that an editable install names (PEP 610)."""
    import json
    from urllib.parse import unquote, urlsplit

    text = read_small(directory / "direct_url.json")
    if text is None:
        return None
    try:
        told = json.loads(text)
        editable = told["dir_info"]["editable"] is True
        url = urlsplit(told["url"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    path = unquote(url.path) if url.scheme == "file" else ""
    return Path(path) if editable and path.startswith("/") and "\0" not in path else None


def _existing_sites(paths: Iterable[str]) -> tuple[Path, ...]:
    """Keep the directories that can hold dist-info: not the standard library, not an archive, each only once."""
    libraries = {os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), "lib-dynload")}  # noqa: PTH118, PTH120
    return _distinct(Path(path) for path in paths if path and path not in libraries and os.path.isdir(path))  # noqa: PTH112


def _distinct(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in paths))


def _find_executable(python: Path) -> Path:
    """Take a path, the directory of an environment, or a name on PATH. A venv's link is kept: it is what tells it."""
    import shutil

    candidate = python / "bin" / "python" if (python / "pyvenv.cfg").is_file() else python
    if candidate.is_file() and os.access(candidate, os.X_OK):
        return Path(os.path.abspath(candidate))  # noqa: PTH100 - absolute() keeps `..`, resolve() follows links
    found = shutil.which(python) if len(python.parts) == 1 else None
    if found is None:
        raise TargetError(f"no interpreter {python}", why="  there is no such executable", hint="check --python")
    return Path(found)


def _is_running_interpreter(executable: Path) -> bool:
    """Compare with sys.executable: the same file in the same directory, since every venv links to one binary."""
    running = Path(sys.executable or "/")
    try:
        return executable.samefile(running) and executable.parent.samefile(running.parent)
    except OSError:
        return False
