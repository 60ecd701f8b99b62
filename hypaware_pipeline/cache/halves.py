"""Try everything at once; where that fails, find the rows that are to blame.

Why: the fast kernels and queries convert a whole column or fail as a whole. One damaged value must cost its own row and no other,
and a column without damage must cost nothing extra.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def attempt(
    length: int,
    convert: Callable[[int, int], T],
    give_up: Callable[[int, int, str], T],
    *,
    failures: tuple[type[Exception], ...],
    smallest: int = 1,
) -> list[T]:
    """Convert positions `0..length` in as few pieces as the bad ones among them allow.

    Args:
        length: How many positions there are.
        convert: Converts the positions from its first argument up to, not including, its second.
        give_up: Stands in for a piece that cannot be converted; gets its first position, the one after its last, and the reason.
        failures: What `convert` raises for a bad position; everything else passes through.
        smallest: A failing piece of at most this many positions is given up instead of cut in two.

    Returns:
        The pieces, in order.
    """
    pieces: list[T] = []
    todo = [(0, length)]
    while todo:
        start, stop = todo.pop()
        try:
            pieces.append(convert(start, stop))
        except failures as error:
            if stop - start <= smallest:
                pieces.append(give_up(start, stop, str(error)))
                continue
            middle = (start + stop) // 2
            todo += [(middle, stop), (start, middle)]
    return pieces
