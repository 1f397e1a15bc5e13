"""The version of patchkit; pyproject.toml reads it from here."""

VERSION = "0.1.0"
