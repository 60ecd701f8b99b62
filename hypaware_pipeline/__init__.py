"""Ships HypAware's cache to durable storage, day by day, as a Dagster project."""
