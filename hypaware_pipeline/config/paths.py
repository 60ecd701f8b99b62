"""Paths as a config file writes them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hypaware_pipeline.config.environment import user_home


@dataclass(frozen=True, slots=True)
class PathRules:
    """How paths in one file are read: relative ones from the file's directory, `~` as the user's home."""

    base: Path
    home: Path

    @classmethod
    def of(cls, config_path: Path, env: Mapping[str, str]) -> "PathRules":
        """The rules for a config file."""
        return cls(config_path.parent, user_home(env))

    def resolve(self, text: str) -> Path:
        """The place a path names, absolute, links followed as far as they exist.

        Links are followed so that two spellings of one place are seen to be one, and a link that is pointed elsewhere is seen to
        be another.

        Raises:
            ValueError: the text is no path.
        """
        if not text.strip():
            raise ValueError("must name a directory")
        if "\0" in text:
            raise ValueError("holds a NUL character, which no path can")
        if text == "~" or text.startswith("~/"):
            path = self.home / text[2:]
        elif text.startswith("~"):
            raise ValueError("only ~ and ~/… stand for a home directory; write other ones out")
        else:
            path = self.base / text
        return Path(os.path.realpath(path))
