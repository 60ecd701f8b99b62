"""How an answer is laid out on stdout.

Why nothing is folded where no terminal shows it: nobody knows the width of a file, a pipe or a mail, and what reads lines wants a
line of a table to be one.
"""

import sys

from rich.console import Console
from rich.table import Column, Table

_ANY_WIDTH = 10_000


def answer_console() -> Console:
    """Folds to the width of a terminal, if stdout is one."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _ANY_WIDTH)


def answer_table(*headings: str) -> Table:
    """Without lines. A cell that a terminal has no room for goes on below itself."""
    return Table(*(Column(heading, overflow="fold") for heading in headings), box=None, pad_edge=False)
