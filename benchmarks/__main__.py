"""Run benchmarks by name and print their tables.

Why nothing heavy is imported here: a process inherits the peak of the one that started it, so the starter stays small.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.lab import Lab

NAMES = ("throughput", "memory", "definitions", "index", "ticks", "export_command")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones; all by default: {', '.join(NAMES)}")
    parser.add_argument("--list", action="store_true", help="say what each measures, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs, not how fast it is")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    for name in options.names or NAMES:
        module = import_module(f"benchmarks.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip()}\n", flush=True)
        if options.list:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="hypaware-benchmark-") as directory:
            for table in module.run(Lab(Path(directory), quick=options.quick)):
                print(f"{table}\n", flush=True)
        print(f"({name} took {time.monotonic() - started:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
