"""The command's entry: what click and pathlib import of the standard library, and hardly ever use, is loaded when used.

`import click` loads `inspect` (with ast, dis and tokenize) to clean help texts, `datetime` and `uuid` (with platform)
for kinds of parameters that no command here has; pathlib loads `urllib.parse` for `as_uri`, up to Python 3.12. Together
they are a sixth of what a start costs. Only the process of the command does this: who imports `patchkit` gets the
modules themselves.

Nothing is imported here that Python has not loaded by itself: before `main` runs, Ctrl-C is answered by a traceback.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # typing's own: to import it takes longer than all that is below

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn
else:
    ModuleType = type(sys)


class Postponed(ModuleType):
    """Stands where a module would, and loads that when it is asked for something that it does not have itself."""

    def __getattr__(self, name: str) -> Any:
        """Return what the module has; the import system asks whether it is a package, and none is."""
        if name == "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(_import(self.__name__), name)


class PostponedClass(type):
    """The kind of a class that stands for the class of the same name in another module."""

    def __call__(cls, *values: Any, **named: Any) -> Any:
        """Make what the class makes."""
        return cls._itself()(*values, **named)

    def __getattr__(cls, name: str) -> Any:
        """Return what the class has; what typing asks of a parameter of a generic class is no reason to load it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(cls._itself(), name)

    def __instancecheck__(cls, value: object) -> bool:
        """Tell whether it is one of the class."""
        return isinstance(value, cls._itself())

    def _itself(cls) -> Any:
        return getattr(_import(cls.__module__), cls.__name__)


def main() -> None:
    """Run the command line and leave with its exit status."""
    gc.disable()  # records hold no cycles, a command is short: looking for some costs a tenth of a long series
    try:
        import_lightly("pathlib", "click")
        from patchkit.cli.main import main as run_and_leave
    except KeyboardInterrupt:
        _leave_interrupted(machine="--json" in sys.argv)
    run_and_leave()


def _leave_interrupted(*, machine: bool) -> NoReturn:
    """Say what `run` says of Ctrl-C, which came before that could be loaded."""
    from contextlib import suppress

    document = b'{"schema": 1, "status": 130, "error": {"what": "interrupted", "why": "", "hint": ""}}\n'
    for stream, text in ((1, document if machine else b""), (2, b"interrupted\n")):
        with suppress(OSError):  # nobody listens
            os.write(stream, text)
    os._exit(130)


def import_lightly(*names: str) -> None:
    """Import modules that find others postponed; whoever imports one of these later gets it as ever."""
    standing = [module for module in _postponed() if module.__name__ not in sys.modules]
    sys.modules.update({module.__name__: module for module in standing})
    for name in names:
        _import(name)
    for module in standing:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]


def _import(name: str) -> ModuleType:
    from importlib import import_module

    return import_module(name)


def clean(text: str) -> str:
    """Return a text without the indentation of its lines and without empty ones around it: `inspect.cleandoc`."""
    first, *others = text.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    lines = [first.lstrip(), *(line[margin:] for line in others)]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    while len(lines) > 1 and not lines[0]:
        del lines[0]
    return "\n".join(lines)


def _postponed() -> list[Postponed]:
    """Return what stands for four modules, with the little that is asked of them at the start."""
    present: dict[str, dict[str, Any]] = {
        "inspect": {"cleandoc": clean},
        "datetime": {"datetime": PostponedClass("datetime", (), {"__module__": "datetime"})},
        "uuid": {"UUID": PostponedClass("UUID", (), {"__module__": "uuid"})},
        "urllib.parse": {"quote_from_bytes": _quote_from_bytes},
    }
    modules = [Postponed(name) for name in present]
    for module in modules:
        vars(module).update(present[module.__name__])
    return modules


def _quote_from_bytes(path: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(path)


if __name__ == "__main__":  # else `python -m patchkit.cli.start` would do nothing, and say that it was done
    main()
