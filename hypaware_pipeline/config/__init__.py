"""HypAware v2 JSON to typed config."""
