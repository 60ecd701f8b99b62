"""A writer of caches in HypAware's format, shared by the demo, the tests and the benchmarks."""
