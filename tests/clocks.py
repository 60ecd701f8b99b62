"""Time for tests."""

import datetime as dt


class AClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Forward by so many `seconds`, `hours` and so on; backward by less than none."""
        self.now += dt.timedelta(**by)
