"""Everything that imports Dagster."""
