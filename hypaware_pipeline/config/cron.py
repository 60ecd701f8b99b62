"""HypAware's 5-field cron grammar: what a schedule may look like."""

import re

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))

_PART = re.compile(r"(?:\*|(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?)(?:/(?P<step>[0-9]+))?")


def cron_problem(text: str) -> str | None:
    """Why `text` is no schedule; None if it is one.

    Each field is a comma-separated list of `*`, `N`, `N-M` or one of these with `/step`. Aliases and names are not part of it.
    """
    if not (text.isascii() and all(character.isprintable() or character == "\t" for character in text)):
        return "schedule holds characters outside printable ASCII"
    fields = text.split()
    if len(fields) != len(_FIELDS) or fields[0].startswith("@"):
        return "schedule must be five fields (minute hour day-of-month month day-of-week); aliases such as @hourly are not taken"
    for field, (name, least, most) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_part(part, least, most):
                return (
                    f"schedule: '{part}' is no {name}; allowed are *, N, N-M and a /step after any of them, N in {least}-{most}"
                )
    return None


def _is_part(part: str, least: int, most: int) -> bool:
    match = _PART.fullmatch(part)
    if match is None or (match["step"] is not None and int(match["step"]) < 1):
        return False
    if match["low"] is None:
        return True
    low = int(match["low"])
    high = low if match["high"] is None else int(match["high"])
    return least <= low <= high <= most
