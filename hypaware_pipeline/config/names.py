"""Names that Dagster, file systems and people all accept.

Why a sink's name is cleaned plainly and a dataset's with a hash: whoever names a sink can choose another name when two become
one, and wants to read it; datasets come from the cache as they are, and two of them must never meet.
"""

import hashlib
import keyword
import re
from collections.abc import Callable, Iterable, Mapping

_MAX_LENGTH = 60  # leaves room for what is put around a slug in asset, job and pool names
_RESERVED = frozenset({"cache", "broken"})  # asset groups of our own
_HASH_LENGTH = 8

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def slug(name: str) -> str:
    """The name with everything but ASCII letters, digits and `_` replaced by `_`; no Python keyword, no name of ours.

    At most 60 characters. Different names may share a slug: see `collisions`.
    """
    cleaned = _UNSAFE.sub("_", name)[:_MAX_LENGTH]
    if not cleaned or is_reserved(cleaned):
        cleaned = f"{cleaned[: _MAX_LENGTH - 1]}_"
    return cleaned


def is_reserved(name: str) -> bool:
    """Whether the name is a Python keyword or a group of our own."""
    return name in _RESERVED or keyword.iskeyword(name) or keyword.issoftkeyword(name)


def distinct_slug(name: str) -> str:
    """`slug`, with a short hash of the raw name where it had to change anything."""
    cleaned = slug(name)
    if cleaned == name:
        return cleaned
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{cleaned[: _MAX_LENGTH - _HASH_LENGTH - 1].rstrip('_')}_{digest}"


def collisions(names: Iterable[str], slug_of: Callable[[str], str] = slug) -> Mapping[str, tuple[str, ...]]:
    """The names that share a slug with another one, each with those others, in order."""
    by_slug: dict[str, list[str]] = {}
    for name in names:
        by_slug.setdefault(slug_of(name), []).append(name)
    return {
        name: tuple(other for other in sharing if other != name)
        for sharing in by_slug.values()
        if len(sharing) > 1
        for name in sharing
    }
