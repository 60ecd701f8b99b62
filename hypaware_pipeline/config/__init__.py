"""HypAware v2 JSON to typed config."""

from hypaware_pipeline.config.document import DEFAULT_RETENTION, Retention
from hypaware_pipeline.config.loading import Config, find_config_path, load_config
from hypaware_pipeline.config.sinks import SinkConfig

__all__ = ["DEFAULT_RETENTION", "Config", "Retention", "SinkConfig", "find_config_path", "load_config"]
