"""What a signal does while days are exported: it ends the export between two batches, and only then does what it would have done.

Why: Dagster raises out of whatever is being executed, and the system ends a process outright. Either way a lease would stay taken
until it expires, and the days that were done in this run would not be recorded as such.

Why an alarm follows: a store that hangs in a call to the network never comes to its next batch. What raises out of it then still
unwinds, and returns the lease on its way.

Why a second signal does at once what it would have done: whoever sends it does not want to wait.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

GRACE_SECONDS = 3.0
"""How long an export may take to come to its end. Whoever ends a service waits for some seconds, and then kills."""

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def closed_by_signals(close: Callable[[], None], *, grace_seconds: float = GRACE_SECONDS) -> Iterator[threading.Event]:
    """While inside, SIGINT and SIGTERM call `close`; on leaving, or after a while, they do what they did before.

    Yields whether one came. Signals are the main thread's; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    handling = _Handling(close, grace_seconds)
    try:
        yield handling.came
    finally:
        handling.end()


class _Handling:
    """The handlers that take the place of those that were there."""

    def __init__(self, close: Callable[[], None], grace_seconds: float) -> None:
        self.came = threading.Event()
        self._close = close
        self._grace_seconds = grace_seconds
        self._owed: int | None = None
        self._before: dict[int, Any] = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGALRM)}
        for number in _ENDING:
            signal.signal(number, self._on_signal)

    def end(self) -> None:
        """Put everything back, and do what was put off."""
        if self.came.is_set():
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._owed is not None:
            owed, self._owed = self._owed, None
            signal.raise_signal(owed)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._owed = number
        if self.came.is_set():
            self.end()
            return
        self.came.set()
        self._close()
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self._grace_seconds)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        self.end()
