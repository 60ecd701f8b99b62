"""What the engine costs, each figure next to a floor measured in the same run; `python -m benchmarks --list`.

A benchmark is a module of this package with a `run(lab)` that yields tables; its docstring says what is measured, and against
what.
"""
