"""Reads HypAware's cache: layout, pins, row index, VARIANT, scans. Never writes there."""
