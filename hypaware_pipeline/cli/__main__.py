"""`python -m hypaware_pipeline.cli`."""

from hypaware_pipeline.cli.app import main

main()
