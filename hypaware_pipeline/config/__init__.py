"""HypAware v2 JSON to typed config."""

from hypaware_pipeline.config.loading import Config, find_config_path, load_config
from hypaware_pipeline.config.sinks import SinkConfig

__all__ = ["Config", "SinkConfig", "find_config_path", "load_config"]
