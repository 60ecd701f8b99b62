"""Nothing in the tests sleeps for a while and hopes: they look until there is something to see."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 180.0

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], *, seconds: float = PATIENCE_SECONDS, every: float = 0.25) -> T:
    """Look until there is something to see."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(every)
