"""The plugin of vLLM that lets the shim in without LD_PRELOAD: a directory that importlib.metadata takes for installed.

What it does stands in runtime/plugin.py, which travels: the engine's interpreter imports nothing of patchkit.
"""

from __future__ import annotations

from pathlib import Path

from patchkit.resources import runtime_directory

WAYS = ("preload", "plugin", "dispatcher")
"""How the shim is let in: `preload` needs no plugin."""

MODULE = "patchkit_shim_plugin"
_GROUP = "vllm.general_plugins"
_METADATA = f"Metadata-Version: 2.1\nName: {MODULE.replace('_', '-')}\nVersion: 1\n"


def plugin_source() -> str:
    """Return the plugin's module."""
    return (runtime_directory() / "plugin.py").read_text()


def write_plugin(directory: Path) -> None:
    """Write the module and the metadata by which vLLM finds it."""
    described = directory / f"{MODULE}-1.dist-info"
    described.mkdir(parents=True)
    (directory / f"{MODULE}.py").write_text(plugin_source())
    (described / "METADATA").write_text(_METADATA)
    (described / "entry_points.txt").write_text(f"[{_GROUP}]\n{MODULE} = {MODULE}:begin\n")
