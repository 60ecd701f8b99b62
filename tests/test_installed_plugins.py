"""Plugins of other packages: installed for the test, found by entry point, carried through a whole export; wrong ones."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.config import Config, load_config
from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.export import installation as installing
from hypaware_pipeline.model import SinkName
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.installed import find_installed
from hypaware_pipeline.plugins.registry import Registry
from tests.builders import a_cache
from tests.installations import JSONL, AnInstallation, write_config
from tests.packages import Packages

DAY = "2026-06-05"
PARQUET = "@hypaware/format-parquet"
LOCAL = "@hypaware/local-fs"

TABLES = '''
"""A table format that keeps a list of its objects, and an encoder that counts rows."""

import json
from dataclasses import dataclass

from hypaware_pipeline.plugins.contracts import Encoded, EncoderSpec
from hypaware_pipeline.plugins.manifest import EncoderOptions, Plugin, Provided, TableFormatOptions
from hypaware_pipeline.sinks.blob import BlobSink


class CountOptions(EncoderOptions):
    unit: str = "rows"

    def settings(self):
        return {"unit": self.unit}


class CountEncoder:
    def __init__(self, unit):
        self.spec = EncoderSpec("count", "txt", "text/plain")
        self.unit = unit

    def encode(self, batches, columns, out):
        rows = sum(batch.num_rows for batch in batches)
        out.write(f"{rows} {self.unit}".encode())
        return Encoded(rows)


class ListOptions(TableFormatOptions):
    list_name: str = "_list.json"

    def settings(self):
        return {"list_name": self.list_name}


class ListFormat:
    def __init__(self, list_name):
        self.list_name = list_name

    def writer(self, sink, encoder, store, *, prefix):
        return ListWriter(BlobSink(sink, encoder, store, prefix), store, prefix, self.list_name)


@dataclass
class ListWriter:
    plain: BlobSink
    store: object
    prefix: str
    list_name: str

    def object_key(self, dataset, day, part):
        return self.plain.object_key(dataset, day, part)

    def write_object(self, key, **how):
        return self.plain.write_object(key, **how)

    def write_receipt(self, receipt, **how):
        body = json.dumps([file.key for file in receipt.files]).encode()
        self.store.put(f"{receipt.dataset}/{self.list_name}", lambda out: out.write(body), **how)
        self.plain.write_receipt(receipt, **how)

    def receipt_key(self, dataset, day):
        return self.plain.receipt_key(dataset, day)

    def read_receipt(self, key):
        return self.plain.read_receipt(key)

    def is_object(self, key):
        return self.plain.is_object(key)

    def sizes(self, dataset, day):
        return self.plain.sizes(dataset, day)

    def digests(self, keys):
        return self.plain.digests(keys)

    def remove(self, keys, **how):
        self.plain.remove(keys, **how)


STORE = {"hypaware.blob-store": "^1.0.0"}
COUNT = Plugin("@acme/count", "0.3.0", encoder=Provided(CountOptions, "acme_tables:CountEncoder"), requires=STORE)
LIST = Plugin(
    "@acme/list",
    "0.3.0",
    table_format=Provided(ListOptions, "acme_tables:ListFormat"),
    requires={**STORE, "hypaware.encoder": "^1.0.0"},
)
'''


OPTIONS = """
import sys

from hypaware_pipeline.plugins.manifest import EncoderOptions, Plugin, Provided


class O(EncoderOptions):
    {method}


PLUGIN = Plugin("@acme/x", "1.0.0", encoder=Provided(O, "{code}"), requires={{"hypaware.blob-store": "^1.0.0"}})
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    before = set(sys.modules)
    yield Packages(root)
    for module in set(sys.modules) - before:
        if (root / f"{module}.py").exists():
            del sys.modules[module]


@pytest.fixture
def registry() -> Registry:
    return Registry(BUNDLED_PLUGINS, find_installed)


def sink(writer: str, destination: str = LOCAL, **options: Any) -> dict[str, Any]:
    return {"writer": writer, "destination": destination, "config": {"dir": "out/feed", **options}}


def load(home: Path, registry: Registry, *, plugins: Any = None, **sinks: Any) -> Config:
    top = {} if plugins is None else {"plugins": plugins}
    path = write_config(home, home / "cache", sinks=sinks, **top)
    return load_config(path, {"HOME": str(home)}, registry)


def said(config: Config, name: str) -> list[tuple[str, str]]:
    return [(error.kind, error.pointer) for error in config.broken_sinks[name]]


@pytest.mark.parametrize(
    ("entry", "content"),
    [
        (sink("@acme/count", unit="lines"), b"3 lines"),
        (sink("@acme/list", encoder="@acme/count"), b"3 rows"),
        (sink("@acme/list"), b"PAR1"),
    ],
)
def test_an_installed_plugin_carries_an_export_from_its_config_to_its_receipt(
    tmp_path: Path,
    packages: Packages,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    entry: dict[str, Any],
    content: bytes,
) -> None:
    packages.install("acme_tables", TABLES, count="acme_tables:COUNT", list="acme_tables:LIST")
    monkeypatch.setattr(installing, "BUNDLED", registry)
    cache = a_cache(tmp_path / "cache").with_day(DAY)
    installation = AnInstallation(tmp_path, cache.root, sinks={"feed": entry})
    (outcome,) = installation.export([DAY])
    assert outcome.error is None
    ((key, data),) = installation.objects().items()
    assert data.startswith(content)
    assert (installation.out() / "logs" / "_list.json").exists() == (entry["writer"] == "@acme/list")
    assert installation.due() == []
    assert [file.key for file in outcome.receipt.files] == [key] if outcome.receipt else False


def test_only_plugins_a_config_names_are_imported(tmp_path: Path, packages: Packages, registry: Registry) -> None:
    packages.install("acme_trap", "raise RuntimeError('imported')", trap="acme_trap:PLUGIN")
    config = load(tmp_path, registry, archive=sink(PARQUET))
    assert (list(config.sinks), config.problems) == (["archive"], ())
    assert "acme_trap" not in sys.modules


def test_a_plugin_that_cannot_be_imported_breaks_only_the_sinks_that_use_it(
    tmp_path: Path, packages: Packages, registry: Registry
) -> None:
    packages.install("acme_trap", "import a_library_that_is_not_there", trap="acme_trap:PLUGIN")
    config = load(tmp_path, registry, archive=sink(PARQUET, prefix="a"), lame=sink("@acme/trap", prefix="b"))
    assert list(config.sinks) == ["archive"]
    assert said(config, "lame") == [("sink_plugin_not_active", "/sinks/lame/writer")]
    message = config.broken_sinks["lame"][0].message
    assert (
        "cannot be imported from acme_trap:PLUGIN: ModuleNotFoundError: No module named 'a_library_that_is_not_there'" in message
    )
    with pytest.raises(SinkHalted, match="cannot be imported"):
        registry.encoder("@acme/trap", {}, Secrets("lame", {}))


def test_a_plugin_that_ends_the_program_when_it_is_imported_breaks_only_the_sinks_that_use_it(
    tmp_path: Path, packages: Packages, registry: Registry
) -> None:
    packages.install("acme_exit", "import sys; sys.exit(0)", exit="acme_exit:PLUGIN")
    config = load(tmp_path, registry, archive=sink(PARQUET, prefix="a"), lame=sink("@acme/exit", prefix="b"))
    assert list(config.sinks) == ["archive"]
    assert said(config, "lame") == [("sink_plugin_not_active", "/sinks/lame/writer")]


@pytest.mark.parametrize(
    ("method", "raised"),
    [
        ("def settings(self): raise KeyError('hunter2')", "KeyError"),
        ("def settings(self): sys.exit(0)", "SystemExit"),
        ("def settings(self): return None", "TypeError"),
        ("def settings(self): return {'unit': object()}", "ValidationError"),
        ("@classmethod\n    def combine(cls, inherited, given): raise RuntimeError('hunter2')", "RuntimeError"),
    ],
)
def test_options_whose_code_is_wrong_break_only_the_sinks_that_use_them(
    tmp_path: Path, packages: Packages, registry: Registry, method: str, raised: str
) -> None:
    packages.install("acme_x", OPTIONS.format(method=method, code="acme_x:C"), x="acme_x:PLUGIN")
    config = load(tmp_path, registry, archive=sink(PARQUET, prefix="a"), lame=sink("@acme/x", prefix="b"))
    assert list(config.sinks) == ["archive"]
    assert said(config, "lame") == [("manifest_invalid", "/sinks/lame")]
    message = config.broken_sinks["lame"][0].message
    assert f"the options of '@acme/x', '{LOCAL}' cannot be judged: code of theirs raised {raised}" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('not today')", "cannot be loaded: RuntimeError: not today"),
        ("import sys; sys.exit(0)", "cannot be loaded: SystemExit: 0"),
        ("class C:\n    def __init__(self): raise SystemExit(3)", "cannot be used: SystemExit: 3"),
        ("class C:\n    spec = None", "cannot be used: its encoder has no encode; upgrade its package"),
    ],
)
def test_code_that_cannot_be_used_halts_the_sink(
    tmp_path: Path, packages: Packages, registry: Registry, code: str, problem: str
) -> None:
    manifest = OPTIONS.format(method="def settings(self): return {}", code="acme_code:C")
    packages.install("acme_x", manifest, x="acme_x:PLUGIN")
    (packages.root / "acme_code.py").write_text(code)
    chosen = load(tmp_path, registry, feed=sink("@acme/x")).sinks[SinkName("feed")]
    with pytest.raises(SinkHalted, match=problem):
        registry.encoder(*chosen.encoding, Secrets("feed", {}))


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ("5", "it is of type int, no Plugin"),
        ("Plugin('@acme/other', '1.0.0', encoder=E)", "it calls itself '@acme/other'"),
        ("Plugin('@acme/x', '1.0', encoder=E)", "its version is '1.0'; write X.Y.Z"),
        ("Plugin('@acme/x', '1.0.0')", "it provides nothing"),
        ("Plugin('@acme/x', 1, encoder=E)", "version is no text"),
        ("Plugin('@acme/x', '1.0.0', section=None, encoder=E)", "section is no Shape"),
        ("Plugin('@acme/x', '1.0.0', encoder=E, requires=['a'])", "requires is no mapping of texts"),
        ("Plugin('@acme/x', '1.0.0', encoder=E, requires={'a': 1})", "requires is no mapping of texts"),
        ("Plugin('@acme/x', '1.0.0', encoder=E, supports='queryable')", "supports is no frozenset of texts"),
        ("Plugin('@acme/x', '1.0.0', encoder='m:C')", "hypaware.encoder is no Provided"),
        ("Plugin('@acme/x', '1.0.0', encoder=Provided('O', 'm:C'))", "hypaware.encoder needs a class of options"),
        ("Plugin('@acme/x', '1.0.0', encoder=E, requires={'a': '1.x'})", "'1.x' is no range for a"),
        (
            "Plugin('@acme/x', '1.0.0', encoder=Provided(O, 'm'))",
            "the code of hypaware.encoder is 'm'; write package.module:Class",
        ),
        ("Plugin('@acme/x', '1.0.0', store=E)", "the options of hypaware.blob-store are no StoreOptions"),
        ("Plugin('@acme/x', '1.0.0', encoder=Provided(O, 'm:C', '1'))", "hypaware.encoder is '1'; write X.Y.Z"),
    ],
)
def test_a_manifest_that_is_wrong_says_how(
    tmp_path: Path, packages: Packages, registry: Registry, plugin: str, problem: str
) -> None:
    code = (
        "from hypaware_pipeline.plugins.manifest import EncoderOptions, Plugin, Provided\n"
        "class O(EncoderOptions):\n    def settings(self):\n        return {}\n"
        f"E = Provided(O, 'm:C')\nPLUGIN = {plugin}\n"
    )
    packages.install("acme_x", code, x="acme_x:PLUGIN")
    config = load(tmp_path, registry, feed=sink("@acme/x"), plugins=[{"name": "@acme/x"}, {"name": LOCAL}])
    assert said(config, "feed") == [("manifest_invalid", "/sinks/feed/writer")]
    assert problem in config.broken_sinks["feed"][0].message
    assert [(error.kind, error.pointer) for error in config.problems] == [
        ("manifest_invalid", "/sinks/feed/writer"),
        ("manifest_invalid", "/plugins/0/config"),
    ]


def test_a_name_that_two_packages_claim_is_nobodys(tmp_path: Path, packages: Packages, registry: Registry) -> None:
    packages.install("acme_tables", TABLES, count="acme_tables:COUNT")
    packages.install("acme_copy", TABLES, count="acme_copy:COUNT")
    config = load(tmp_path, registry, feed=sink("@acme/count"))
    assert said(config, "feed") == [("manifest_invalid", "/sinks/feed/writer")]
    assert "comes with acme_copy and acme_tables; uninstall all but one" in config.broken_sinks["feed"][0].message


def test_a_package_cannot_replace_a_bundled_plugin(tmp_path: Path, packages: Packages, registry: Registry) -> None:
    info = packages.root / "acme_thief-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_thief\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hypaware_pipeline.plugins]\n{PARQUET} = nowhere:PLUGIN\n")
    assert list(load(tmp_path, registry, archive=sink(PARQUET)).sinks) == ["archive"]


def test_a_capability_in_a_version_that_does_not_fit_is_said_with_both(
    tmp_path: Path, packages: Packages, registry: Registry
) -> None:
    newer = TABLES.replace('STORE = {"hypaware.blob-store": "^1.0.0"}', 'STORE = {"hypaware.blob-store": "^2.0.0"}')
    packages.install("acme_tables", newer, count="acme_tables:COUNT")
    config = load(tmp_path, registry, feed=sink("@acme/count"))
    assert said(config, "feed") == [("sink_capability_missing", "/sinks/feed/writer")]
    message = config.broken_sinks["feed"][0].message
    assert f"requires hypaware.blob-store ^2.0.0, the sink's other plugins provide '{LOCAL}' 1.0.0" in message


def test_an_encoder_that_is_off_breaks_the_table_format_that_would_use_it(
    tmp_path: Path, packages: Packages, registry: Registry
) -> None:
    packages.install("acme_tables", TABLES, list="acme_tables:LIST")
    on = [{"name": "@acme/list"}, {"name": LOCAL}]
    config = load(tmp_path, registry, feed=sink("@acme/list"), plugins=on)
    assert said(config, "feed") == [("sink_plugin_not_active", "/sinks/feed/config/encoder")]
    assert config.problems == config.broken_sinks["feed"]


def test_an_encoder_cannot_be_chosen_for_a_writer_that_encodes_itself(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, feed={**JSONL, "config": {"dir": "out", "encoder": PARQUET}})
    assert said(config, "feed") == [("sink_config_invalid", "/sinks/feed/config/encoder")]


def test_the_inner_encoder_is_part_of_what_shapes_the_objects(tmp_path: Path, packages: Packages, registry: Registry) -> None:
    packages.install("acme_tables", TABLES, count="acme_tables:COUNT", list="acme_tables:LIST")
    entries = {"plain": sink("@acme/list", prefix="a"), "chosen": sink("@acme/list", prefix="b", encoder="@acme/count")}
    config = load(tmp_path, registry, **entries)
    assert config.broken_sinks == {}
    assert config.sinks[SinkName("plain")].encoding[0] == PARQUET
    assert config.sinks[SinkName("chosen")].encoding == ("@acme/count", {"unit": "rows"})
