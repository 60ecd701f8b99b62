"""The config as a JSON Schema, for editors: what completes and underlines while somebody writes it.

Why pairs are spelled out: which keys a sink's `config` takes depends on its plugins, and a schema without that accepts every
misspelt key. A sink of a plugin that is not listed here (one of another package) is let pass: the program judges it.

Why the schema is not what judges: it knows no rule between two places of a file, and says less when something is wrong.
"""

from collections.abc import Iterable
from typing import Any

from hypaware_pipeline.config.document import Document
from hypaware_pipeline.config.shape import Shape
from hypaware_pipeline.config.sinks import NAME_PATTERN, CommonOptions
from hypaware_pipeline.plugins.manifest import Plugin

Schema = dict[str, Any]


def config_schema(plugins: Iterable[Plugin]) -> Schema:
    """The JSON Schema (2020-12) of a config file whose sinks use these plugins."""
    plugins = tuple(plugins)
    schema = Document.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "hypaware-pipeline"
    schema["properties"]["sinks"] = {
        "type": "object",
        "description": "What is exported, and where to; by name.",
        "propertyNames": {"pattern": f"^{NAME_PATTERN}$"},
        "additionalProperties": _sink(plugins),
    }
    schema["$defs"]["PluginEntry"]["allOf"] = [
        {"if": _names("name", plugin), "then": {"properties": {"config": _shape(plugin.section)}}} for plugin in plugins
    ]
    return schema


def _sink(plugins: tuple[Plugin, ...]) -> Schema:
    pairs = [(writer, destination) for writer in plugins for destination in plugins if writer.encoder and destination.store]
    return {
        "type": "object",
        "properties": {
            "writer": _choice("Encodes the rows.", (plugin.name for plugin in plugins if plugin.encoder)),
            "destination": _choice("Stores the objects.", (plugin.name for plugin in plugins if plugin.store)),
            "config": {"type": "object"},
        },
        "required": ["writer", "destination"],
        "additionalProperties": False,
        "allOf": [
            {
                "if": {"allOf": [_names("writer", writer), _names("destination", destination)]},
                "then": _with_config(_config(writer, destination)),
            }
            for writer, destination in pairs
        ],
    }


def _with_config(config: Schema) -> Schema:
    """An object with this `config`, which may be left out only if it need not say anything."""
    return {"properties": {"config": config}, "required": ["config"] if config["required"] else []}


def _config(writer: Plugin, destination: Plugin) -> Schema:
    parts: list[type[Shape]] = [CommonOptions]
    parts += [part.options for part in (writer.encoder, destination.store) if part is not None]
    schemas = [_shape(part) for part in parts]
    return {
        "type": "object",
        "properties": {key: value for schema in schemas for key, value in schema["properties"].items()},
        "required": [key for schema in schemas for key in schema.get("required", ())],
        "additionalProperties": False,
    }


def _shape(shape: type[Shape]) -> Schema:
    schema = shape.model_json_schema()
    return {key: value for key, value in schema.items() if key in ("type", "properties", "required", "additionalProperties")}


def _choice(description: str, names: Iterable[str]) -> Schema:
    """One of these names, which an editor offers, or any other."""
    return {"description": description, "anyOf": [{"enum": list(names)}, {"type": "string", "minLength": 1}]}


def _names(key: str, plugin: Plugin) -> Schema:
    return {"properties": {key: {"const": plugin.name}}, "required": [key]}
