"""What runs in a side's process: call a function, time the call alone, leave the answer in a file.

Usage: python -m benchmarks.side MODULE:FUNCTION ARGUMENTS_AS_JSON ANSWER_FILE
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path


def main(target: str, arguments: str, answer: str) -> None:
    """Run one side. The function's module is imported before the clock starts."""
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    given = json.loads(arguments)
    started, cpu_started = time.perf_counter(), time.process_time()
    figures = function(**given) or {}
    taken = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}
    Path(answer).write_text(json.dumps({**taken, "figures": figures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
