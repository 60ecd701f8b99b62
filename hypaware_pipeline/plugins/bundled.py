"""The plugins that come with this project, under the names HypAware gives them.

Why HypAware's spellings are taken (`zstd_level`, upper-case codecs): a plugin entry copied from HypAware's own file must work.
Keys of such an entry that speak of HypAware's writer only (`exports_dir`, `page_size`) are checked and left at that; in a sink's
own `config` they are errors, since there somebody expects them to do something.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from hypaware_pipeline.config.catalog import BLOB_STORE, QUERYABLE
from hypaware_pipeline.config.document import NonEmpty
from hypaware_pipeline.config.paths import PathRules
from hypaware_pipeline.config.references import has_reference
from hypaware_pipeline.config.shape import Shape
from hypaware_pipeline.config.sinks import Settings, file_place
from hypaware_pipeline.plugins.manifest import EncoderOptions, Plugin, Provided, StoreOptions

MIB = 1 << 20

_LEVELS = {"zstd": (1, 22, 3), "gzip": (1, 9, 6)}
"""Least, greatest and default level of the codecs that have one."""


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _check_level(codec: str | None, level: int) -> None:
    """Raise ValueError unless the codec has this level. The codec is None when it was wrong itself, which is reported already."""
    if codec is None:
        return
    if codec not in _LEVELS:
        raise ValueError(f"codec '{codec}' has no levels; leave it out")
    least, greatest, _ = _LEVELS[codec]
    if not least <= level <= greatest:
        raise ValueError(f"{codec} levels are {least} to {greatest}")


def _level_setting(codec: str, level: int | None) -> Settings:
    if codec not in _LEVELS:
        return {}
    return {"level": _LEVELS[codec][2] if level is None else level}


def _without_levels(inherited: Mapping[str, Any], given: Mapping[str, Any], *, codec_key: str) -> Mapping[str, Any]:
    """A level belongs to the codec it was written for: a sink that chooses either takes no level from the plugin's entry."""
    levels = {"level", "zstd_level"}
    if not given.keys() & {codec_key, *levels}:
        return inherited
    return {key: value for key, value in inherited.items() if key not in levels}


class ParquetOptions(EncoderOptions):
    """Options of `@hypaware/format-parquet`. `zstd_level` is HypAware's name for the level if the codec is zstd."""

    codec: Annotated[
        Literal["zstd", "snappy", "gzip", "none"],
        BeforeValidator(
            _lower, json_schema_input_type=Literal["zstd", "snappy", "gzip", "none", "ZSTD", "SNAPPY", "GZIP", "NONE"]
        ),
    ] = "zstd"
    level: int | None = Field(default=None, description="Of the codec: zstd 1 to 22 (3), gzip 1 to 9 (6).")
    zstd_level: int | None = Field(default=None, description="HypAware's name for the level of zstd.")
    # Less than 1 MiB makes readers slow, more than 1 GiB does not fit the memory an export may take.
    row_group_bytes: int = Field(
        default=32 * MIB, ge=MIB, le=1024 * MIB, description="How much of the rows one row group holds, before compression."
    )

    @field_validator("level")
    @classmethod
    def _is_a_level_of_the_codec(cls, level: int | None, info: ValidationInfo) -> int | None:
        if level is not None:
            _check_level(info.data.get("codec"), level)
        return level

    @field_validator("zstd_level")
    @classmethod
    def _is_a_level_of_zstd(cls, level: int | None, info: ValidationInfo) -> int | None:
        if level is not None:
            if info.data.get("level") is not None:
                raise ValueError("is another name for level; give one of the two")
            _check_level("zstd", level)
        return level

    @classmethod
    def combine(cls, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Options.combine`."""
        return {**_without_levels(inherited, given, codec_key="codec"), **given}

    def settings(self) -> Settings:
        """See `Options.settings`."""
        level = self.zstd_level if self.codec == "zstd" and self.level is None else self.level
        return {"codec": self.codec, **_level_setting(self.codec, level), "row_group_bytes": self.row_group_bytes}


class ParquetSection(ParquetOptions):
    """The plugin's own entry, which may carry a key of HypAware's writer."""

    page_size: Annotated[float, Field(gt=0)] | None = None


class JsonlOptions(EncoderOptions):
    """Options of `@hypaware/format-jsonl`."""

    compression: Annotated[
        Literal["gzip", "zstd"],
        BeforeValidator(_lower, json_schema_input_type=Literal["gzip", "zstd", "GZIP", "ZSTD"]),
    ] = "gzip"
    level: int | None = Field(default=None, description="Of the compression: gzip 1 to 9 (6), zstd 1 to 22 (3).")

    @field_validator("level")
    @classmethod
    def _is_a_level_of_the_compression(cls, level: int | None, info: ValidationInfo) -> int | None:
        if level is not None:
            _check_level(info.data.get("compression"), level)
        return level

    @classmethod
    def combine(cls, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Options.combine`."""
        return {**_without_levels(inherited, given, codec_key="compression"), **given}

    def settings(self) -> Settings:
        """See `Options.settings`."""
        return {"compression": self.compression, **_level_setting(self.compression, self.level)}


class LocalFsOptions(StoreOptions):
    """Options of `@hypaware/local-fs`. `dir` is absolute once read, unless it begins with a reference to a variable."""

    dir: NonEmpty = Field(description="Where to: absolute, ~/…, or relative to the config file.")

    @field_validator("dir")
    @classmethod
    def _is_a_path(cls, text: str, info: ValidationInfo) -> str:
        rules = info.context
        if not isinstance(rules, PathRules):
            raise TypeError("path rules are needed as context")
        if text.startswith("${ENV:") and has_reference(text):
            return text  # only the variable tells where it begins
        return str(rules.resolve(text))

    @field_validator("prefix")
    @classmethod
    def _stays_inside(cls, text: str) -> str:
        prefix = text.strip("/")
        if not all(_is_safe(segment) for segment in prefix.split("/") if prefix):
            raise ValueError(
                "must be a relative path whose parts are not empty, do not begin with '.', "
                "and hold neither a backslash nor a control character"
            )
        return prefix

    def settings(self) -> Settings:
        """See `Options.settings`."""
        return {"dir": self.dir}

    @classmethod
    def arguments(cls, settings: Settings) -> Mapping[str, Any]:
        """See `Options.arguments`."""
        root = Path(str(settings["dir"]))
        if not root.is_absolute():
            raise ValueError("dir begins with a variable, which must hold an absolute path and does not")
        return {"root": root}

    def place(self) -> tuple[str, ...]:
        """See `StoreOptions.place`."""
        return file_place(Path(self.dir) / self.prefix)


class LocalFsSection(Shape):
    """The plugin's own entry: where HypAware's Iceberg writer puts its tables."""

    exports_dir: NonEmpty | None = None


def _is_safe(segment: str) -> bool:
    return bool(segment) and not segment.startswith(".") and segment.isprintable() and "\\" not in segment


_VERSION = "1.0.0"
_REQUIRES_STORE = {BLOB_STORE: "^1.0.0"}

BUNDLED_PLUGINS = (
    Plugin(
        name="@hypaware/format-parquet",
        version=_VERSION,
        section=ParquetSection,
        encoder=Provided(ParquetOptions, "hypaware_pipeline.sinks.encoders.parquet:ParquetEncoder"),
        requires=_REQUIRES_STORE,
        supports=frozenset({QUERYABLE}),
    ),
    Plugin(
        name="@hypaware/format-jsonl",
        version=_VERSION,
        section=JsonlOptions,
        encoder=Provided(JsonlOptions, "hypaware_pipeline.sinks.encoders.jsonl:JsonlEncoder"),
        requires=_REQUIRES_STORE,
    ),
    Plugin(
        name="@hypaware/local-fs",
        version=_VERSION,
        section=LocalFsSection,
        store=Provided(LocalFsOptions, "hypaware_pipeline.sinks.stores.local_fs:LocalFsStore"),
        supports=frozenset({QUERYABLE}),
    ),
)
