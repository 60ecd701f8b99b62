"""The command line."""

from hypaware_pipeline.cli.app import main

__all__ = ["main"]
