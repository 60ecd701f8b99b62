"""Sides run in processes of their own, in turn, and the tables made of what they took.

Why a process per run: peak memory is a process's, and nothing of one side (imports, pools, caches in memory) may help the next.

Why sides alternate and ratios are taken round by round: a machine that is busy or throttled for a while slows both sides of a
round, not one side of the table.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_FOREIGN = ("DAGSTER_HOME", "HYP_HOME", "HYP_CONFIG", "HYPAWARE_PIPELINE_CONFIG", "HYPAWARE_STATE_DIR")
# ru_maxrss is in kilobytes, except on macOS.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Side:
    """A function to call in a process of its own: `module:function` with keyword arguments JSON can carry.

    It returns a dict of figures, or nothing.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run took.

    Attributes:
        seconds: Wall time of the call; of the whole process where a command was run.
        cpu_seconds: Processor time of the same, over all threads.
        peak_bytes: Largest resident size of the process, imports included.
        figures: What the function returned.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    figures: Mapping[str, float]

    def taking(self, figure: str) -> "Sample":
        """The same run, of which only a part that the function timed itself counts."""
        return replace(self, seconds=self.figures[figure])


class Lab:
    """Where benchmarks run; everything they write lies below `directory`."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self._made = 0

    def size(self, full: int, quick: int) -> int:
        """One of two sizes."""
        return quick if self.quick else full

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A new empty directory, removed at the end: the large ones of a benchmark must not add up."""
        self._made += 1
        path = self.directory / f"scratch-{self._made}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def run(self, side: Side) -> Sample:
        """Call a function in a process of its own.

        Raises:
            RuntimeError: it failed; the text is what it said.
        """
        self._made += 1
        answer = self.directory / f"answer-{self._made}.json"
        command = [sys.executable, "-m", "benchmarks.side", side.function, json.dumps(side.arguments), str(answer)]
        sample = self.run_command(command)
        document = json.loads(answer.read_text())
        print(f"  {side.function} {document['seconds']:.1f} s", file=sys.stderr, flush=True)
        return Sample(document["seconds"], document["cpu_seconds"], sample.peak_bytes, document["figures"])

    def run_command(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Sample:
        """Run a command, with `env` added to an environment that points at nobody's own installation.

        Raises:
            RuntimeError: it failed; the text is what it said.
        """
        clean = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        output = self.directory / "output.txt"
        started = time.monotonic()
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=ROOT, env={**clean, **(env or {})}, stdout=file, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{output.read_text(errors='replace')}")
        return Sample(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _RSS_UNIT, {})


def seconds(samples: Iterable[Sample]) -> float:
    """The median of the wall times."""
    return statistics.median(sample.seconds for sample in samples)


def cpu_seconds(samples: Iterable[Sample]) -> float:
    """The median of the processor times."""
    return statistics.median(sample.cpu_seconds for sample in samples)


def peak_megabytes(samples: Iterable[Sample]) -> float:
    """The largest peak, in MB of a million bytes."""
    return max(sample.peak_bytes for sample in samples) / 1e6


def ratio(samples: Sequence[Sample], floor: Sequence[Sample]) -> float:
    """How fast a side is as a share of its floor's speed: the median over rounds of floor time / side time."""
    return statistics.median(low.seconds / high.seconds for high, low in zip(samples, floor, strict=True))


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its columns aligned."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"| {_line(line, widths)} |" for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + (":" if at else "-") for at, width in enumerate(widths)) + "|"
    return "\n".join([title, "", text[0], rule, *text[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])
