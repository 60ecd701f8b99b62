"""The engine: what is due, and how a batch reaches a sink. Knows no Dagster."""
