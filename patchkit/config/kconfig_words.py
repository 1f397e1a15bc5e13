"""The words of Kconfig: which are refused and why, which open and close blocks, what a line without its rest is."""

from __future__ import annotations

REFUSED = {
    "tristate": "`m` means nothing here: write `bool`",
    "def_tristate": "`m` means nothing here: write `def_bool`",
    "imply": "it would be dropped in silence where dependencies are not met: use `select`, or `default y if`",
    "option": "its values come from the environment: write `default`",
    "osource": "a file that may be missing makes two configurations of one: use `source`",
    "orsource": "a file that may be missing makes two configurations of one: use `rsource`",
    "gsource": "name the file with `source`",
    "grsource": "name the file with `rsource`",
}
OPENING = frozenset({"if", "menu", "choice"})
CLOSING = frozenset({"endif", "endmenu", "endchoice"})
ENTRIES = OPENING | CLOSING | {"comment", "source", "rsource", "mainmenu"}
_TYPES = {name: name for name in ("bool", "int", "hex", "string")}
_SKELETONS = {
    **{word: word for word in ("choice", "help", *CLOSING)},
    **_TYPES,
    **{f"def_{name}": name for name in _TYPES},
    "tristate": "bool",
    "def_tristate": "bool",
    "if": "if y",
    "menu": 'menu "-"',
}
PROPERTIES = frozenset(
    {*_SKELETONS, *REFUSED, "prompt", "default", "depends", "select", "range", "visible", "optional"}
) - {"osource", "orsource", "gsource", "grsource"}

WORDS = PROPERTIES | ENTRIES | REFUSED.keys() | {"config", "menuconfig"}


def skeleton(word: str, name: str) -> str:
    """Return the least that a line with this first word has to say for those behind it to mean what they mean.

    `name` is for a symbol, whose own may be what is wrong.
    """
    return f"config {name}" if word in ("config", "menuconfig") else _SKELETONS.get(word, "")


def near_word(word: str) -> str:
    """Return the word of Kconfig that may be meant, "" where none is near."""
    from difflib import get_close_matches

    words = ("config", "bool", "string", "default", "depends", "select", "range", "prompt", "choice", "endchoice")
    more = ("menu", "endmenu", "menuconfig", "endif", "help", "source", "visible", "comment", "int", "hex", "def_bool")
    return next(iter(get_close_matches(word, (*words, *more), 1)), "")
