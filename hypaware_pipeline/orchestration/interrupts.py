"""What a signal does while days are exported: it ends the export between two batches, and only then does what it would have done.

Why: Dagster raises out of whatever is being executed, and the system ends a process outright. Either way a lease would stay taken
until it expires, and the days that were done in this run would not be recorded as such.

Why a second signal does at once what it would have done: whoever sends it does not want to wait.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def closed_by_signals(close: Callable[[], None]) -> Iterator[threading.Event]:
    """While inside, SIGINT and SIGTERM call `close`; on leaving they do what they did before. Yields whether one came.

    Signals are the main thread's; in another one nothing changes.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        _restore(before)
        received.append(number)
        came.set()
        close()

    for number in _ENDING:
        signal.signal(number, on_signal)
    try:
        yield came
    finally:
        _restore(before)
        for came_in in received:
            signal.raise_signal(came_in)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
