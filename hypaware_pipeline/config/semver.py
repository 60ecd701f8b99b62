"""HypAware's version ranges, as far as manifests use them.

Why so few forms: `*`, one comparison, `^` and `~` before a full `X.Y.Z` is all HypAware's own matcher knows. A richer one here
would accept manifests that HypAware refuses. Like there, a pre-release tag is read and makes no difference.
"""

import re
from typing import NamedTuple

_ANY = frozenset({"", "*", "x", "X"})
_VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?")
_RANGE = re.compile(r"(?P<operator>\^|~|>=|<=|>|<|=)?\s*(?P<version>\S+)")


class Version(NamedTuple):
    """The numbers of a version; they compare as versions do."""

    major: int
    minor: int
    patch: int


def parse_version(text: str) -> Version | None:
    """The numbers of `X.Y.Z`, with or without a pre-release tag; None if it is no version."""
    match = _VERSION.fullmatch(text)
    return Version(*(int(number) for number in match.groups())) if match else None


def is_valid_range(text: str) -> bool:
    """Whether a manifest may write this range. The empty one matches everything, but nobody may write it."""
    return text.strip() != "" and (text.strip() in _ANY or _parse(text) is not None)


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version lies in a range. What is no version, or no range, never does."""
    found = parse_version(version)
    if found is None:
        return False
    if wanted.strip() in _ANY:
        return True
    parsed = _parse(wanted)
    return parsed is not None and _compare(found, *parsed)


def _parse(text: str) -> tuple[str, Version] | None:
    match = _RANGE.fullmatch(text.strip())
    version = parse_version(match["version"]) if match else None
    return (match["operator"] or "=", version) if match and version else None


def _compare(found: Version, operator: str, wanted: Version) -> bool:
    if operator in "^~":
        return wanted <= found < (_next_breaking(wanted) if operator == "^" else _next_minor(wanted))
    return {
        "=": found == wanted,
        ">": found > wanted,
        ">=": found >= wanted,
        "<": found < wanted,
        "<=": found <= wanted,
    }[operator]


def _next_minor(version: Version) -> Version:
    return Version(version.major, version.minor + 1, 0)


def _next_breaking(version: Version) -> Version:
    """Below 1.0.0 a minor version may break, below 0.1.0 every patch."""
    if version.major:
        return Version(version.major + 1, 0, 0)
    return _next_minor(version) if version.minor else Version(0, 0, version.patch + 1)
