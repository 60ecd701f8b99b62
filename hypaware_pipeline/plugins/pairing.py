"""The plugins of one sink together: whether their versions fit, and what its options come to.

Why options are combined before they are judged: what a sink leaves open comes from the plugin's entry in our file, and what that
leaves open from HypAware's; only the whole can be right or wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from hypaware_pipeline.config.active import PluginEntries
from hypaware_pipeline.config.catalog import listed
from hypaware_pipeline.config.entries import BlobEntry
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.semver import satisfies
from hypaware_pipeline.config.shape import Shape, check_shape
from hypaware_pipeline.config.sinks import CommonOptions, ResolvedPair, Settings, reference_errors
from hypaware_pipeline.errors import ConfigError
from hypaware_pipeline.plugins.manifest import EncoderOptions, Options, Plugin, Provided, StoreOptions, TableFormatOptions

OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class Pair:
    """A writer and a destination whose capabilities fit; `inner` encodes for a writer that is a table format."""

    writer: Plugin
    destination: Plugin
    inner: Plugin | None = None

    def parts(self) -> Iterator[tuple[str, Plugin]]:
        """All plugins of the sink, each with the place in its entry where it is named."""
        yield "writer", self.writer
        yield "destination", self.destination
        if self.inner is not None:
            yield "config/encoder", self.inner

    def supports(self) -> frozenset[str]:
        """What the sink supports: what all the plugins that say so do. A table's store is only asked to keep its bytes."""
        return self.writer.supports & (self.destination if self.inner is None else self.inner).supports


def version_errors(pointer: str, pair: Pair) -> list[ConfigError]:
    """Capabilities that a plugin of the sink requires and no other one provides in a version that fits."""
    errors = []
    for place, plugin in pair.parts():
        others = [other for _, other in pair.parts() if other is not plugin]
        for capability, wanted in plugin.requires.items():
            offered = {other.name: other.provides[capability] for other in others if capability in other.provides}
            if not any(satisfies(version, wanted) for version in offered.values()):
                has = listed(f"'{name}' {version}" for name, version in offered.items())
                message = f"'{plugin.name}' requires {capability} {wanted}, the sink's other plugins provide {has}"
                errors.append(ConfigError("sink_capability_missing", f"{pointer}/{place}", message))
    return errors


def read_section(plugin: Plugin, config: Mapping[str, Any], pointer: str, paths: PathRules) -> Shape | list[ConfigError]:
    """The `config` of a plugin's own entry, which stands at `pointer`, or everything that is wrong with it."""
    section = check_shape(plugin.section, config, kind="config_section_invalid", pointer=pointer, context=paths)
    errors = [*(section if isinstance(section, list) else ()), *reference_errors(config, pointer, "config_section_invalid")]
    return errors or section


def resolve_options(
    entry: BlobEntry, options: Mapping[str, Any], pair: Pair, plugins: PluginEntries, paths: PathRules
) -> ResolvedPair | list[ConfigError]:
    """The settings of all plugins, or everything that is wrong with their entries and the sink's options."""
    encoder_plugin = pair.inner or pair.writer
    encoder, store = encoder_plugin.encoder, pair.destination.store
    if encoder is None or store is None:
        raise ValueError("no pair: the capabilities are judged before the options")
    table_format = pair.writer.table_format if pair.inner else None
    judge = _Judge(entry, options, plugins, paths)
    errors = judge.unknown_keys([encoder, store, *([table_format] if table_format else [])])
    encoded = judge.options(encoder_plugin, encoder)
    stored = judge.options(pair.destination, store)
    tabled = judge.options(pair.writer, table_format) if table_format else None
    errors += [error for found in (encoded, stored, tabled) if isinstance(found, list) for error in found]
    if errors or not (isinstance(encoded, EncoderOptions) and isinstance(stored, StoreOptions)):
        return errors
    inner = (encoder_plugin.name, _plain(encoded.settings())) if pair.inner else (None, {})
    return ResolvedPair(
        writer_settings=_plain(tabled.settings() if isinstance(tabled, TableFormatOptions) else encoded.settings()),
        destination_settings=_plain(stored.settings()),
        place=_PLACE.validate_python(stored.place()),
        prefix=stored.prefix,
        supports=tuple(sorted(pair.supports())),
        encoder=inner[0],
        encoder_settings=inner[1],
    )


_SETTINGS: TypeAdapter[dict[str, str | int]] = TypeAdapter(dict[str, str | int], config=ConfigDict(strict=True))
_PLACE: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[str, ...], config=ConfigDict(strict=True))


def _plain(settings: Settings) -> Settings:
    """Settings as they are pinned for a run.

    Raises:
        pydantic.ValidationError: they are not plain.
    """
    return _SETTINGS.validate_python(dict(settings))


@dataclass(frozen=True, slots=True)
class _Judge:
    """One sink's options, judged plugin by plugin."""

    entry: BlobEntry
    given: Mapping[str, Any]
    plugins: PluginEntries
    paths: PathRules

    def unknown_keys(self, parts: list[Provided[Any]]) -> list[ConfigError]:
        taken = set(CommonOptions.model_fields).union(*(part.options.model_fields for part in parts))
        if len(parts) > 2:
            taken.add("encoder")
        return [
            ConfigError(
                "sink_config_invalid",
                f"{self.entry.pointer}/config/{key}",
                f"unrecognized key '{key}'; known are {listed(taken)}",
            )
            for key in self.given
            if key not in taken
        ]

    def options(self, plugin: Plugin, part: Provided[OptionsT]) -> OptionsT | list[ConfigError]:
        """A plugin's options: what HypAware's entry of it says, overridden by ours, overridden by the sink's `config`."""
        fields = set(part.options.model_fields)
        pointer, own = self.plugins.own_config(plugin.name)
        section = read_section(plugin, own, pointer, self.paths)
        hypaware = read_section(plugin, self.plugins.inherited_config(plugin.name), "", self.paths)
        if isinstance(section, list) or isinstance(hypaware, list):
            return section if isinstance(section, list) else []
        base: Mapping[str, Any] = hypaware.model_dump(include=fields, exclude_unset=True)
        base = part.options.combine(base, section.model_dump(include=fields, exclude_unset=True))
        given = {key: value for key, value in self.given.items() if key in fields}
        return check_shape(
            part.options,
            part.options.combine(base, given),
            kind="sink_config_invalid",
            pointer=f"{self.entry.pointer}/config",
            context=self.paths,
        )
