"""The DuckDB that decodes, sorts by keys, and puts shredded VARIANTs together. It holds no tables and no settings.

Why one for the process: to make and close a database costs as much as to export a small day, and every cursor of one is a
connection of its own, for any thread.
"""

from functools import cache

import duckdb


def cursor() -> duckdb.DuckDBPyConnection:
    """A connection; closing it leaves the others alone."""
    return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
