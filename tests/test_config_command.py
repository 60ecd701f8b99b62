"""`config schema` and `config validate`, and that the documents' examples are what both take."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hypaware_pipeline.cli import main
from hypaware_pipeline.config import load_config
from hypaware_pipeline.config.sinks import CommonOptions
from hypaware_pipeline.plugins.bundled import BUNDLED_PLUGINS
from hypaware_pipeline.plugins.registry import BUNDLED
from hypaware_pipeline.plugins.schema import config_schema

ROOT = Path(__file__).resolve().parent.parent
PARQUET = {"writer": "@hypaware/format-parquet", "destination": "@hypaware/local-fs"}
JSONL = {**PARQUET, "writer": "@hypaware/format-jsonl"}
SCHEMA = config_schema(BUNDLED_PLUGINS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run a command line; its exit code, stdout and stderr."""
    monkeypatch.setenv("HYP_HOME", str(tmp_path / "hyp"))
    monkeypatch.delenv("HYP_CONFIG", raising=False)

    def run_(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hypaware-pipeline", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run_


def write(path: Path, **document: Any) -> str:
    path.write_text(json.dumps({"version": 2, **document}))
    return str(path)


# --- validate ------------------------------------------------------------------------------------------------------------------


def test_a_config_that_is_right_is_said_to_be(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "c.json", sinks={"archive": {**PARQUET, "config": {"dir": "out"}}})
    assert run("config", "validate", "--config", path) == (0, f"{path} is right: 1 sinks\n", "")


def test_everything_wrong_is_said_with_the_sinks_that_work_all_the_same(run: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.json",
        plugins=[{"name": name} for name in (*PARQUET.values(), "@acme/x")],
        sinks={
            "archive": {**PARQUET, "config": {"dir": "out"}},
            "hook": {**PARQUET, "destination": "@hypaware/webhook"},
            "late": {**PARQUET, "config": {"dir": "late", "schedule": "@hourly"}},
        },
    )
    code, out, err = run("config", "validate", "--config", path)
    assert (code, out) == (2, "")
    pointers = [line.strip().split(": ")[0] for line in err.splitlines()[1:-1]]
    assert pointers == ["/plugins/2/name", "/sinks/hook/destination", "/sinks/late/config/schedule"]
    assert err.splitlines()[-1] == "sinks that work: archive"


def test_a_file_that_cannot_be_used_at_all_ends_with_the_same_exit_code(run: Any, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{")
    code, _, err = run("config", "validate", "--config", str(tmp_path / "c.json"))
    assert code == 2
    assert "config_invalid_json" in err


def test_notes_on_hypawares_file_make_nothing_wrong(run: Any, tmp_path: Path) -> None:
    (tmp_path / "hyp").mkdir()
    (tmp_path / "hyp" / "hypaware-config.json").write_text("{")
    code, _, err = run("config", "validate", "--config", write(tmp_path / "c.json"))
    assert code == 0
    assert err.startswith("note: HypAware's ")


# --- schema --------------------------------------------------------------------------------------------------------------------

_DESCRIBING = {"title", "description", "default", "$schema", "$defs", "format"}


def errors(schema: Any, value: Any, place: str = "") -> Iterator[str]:
    """What a JSON Schema says against a value: the part of the standard our schema uses, and an error for any other part."""
    for keyword, argument in schema.items():
        if keyword not in _DESCRIBING:
            yield from _KEYWORDS[keyword](argument, value, place, schema)


def ref(argument: str, value: Any, place: str, _: Any) -> Iterator[str]:
    yield from errors(SCHEMA["$defs"][argument.removeprefix("#/$defs/")], value, place)


def of_type(argument: str, value: Any, place: str, _: Any) -> Iterator[str]:
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float)}
    kind: Any = types.get(argument, int)
    if not isinstance(value, kind) or (isinstance(value, bool) and argument in ("number", "integer")):
        yield f"{place} is no {argument}"


def members(argument: dict[str, Any], value: Any, place: str, _: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key in argument.keys() & value.keys():
            yield from errors(argument[key], value[key], f"{place}/{key}")


def other_members(argument: Any, value: Any, place: str, schema: Any) -> Iterator[str]:
    for key in value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ():
        if isinstance(argument, dict):
            yield from errors(argument, value[key], f"{place}/{key}")
        elif not argument:
            yield f"{place}/{key} is unknown"


def any_of(argument: list[Any], value: Any, place: str, _: Any) -> Iterator[str]:
    if all(list(errors(one, value)) for one in argument):
        yield f"{place} fits nothing"


def all_of(argument: list[Any], value: Any, place: str, _: Any) -> Iterator[str]:
    for one in argument:
        yield from errors(one, value, place)


def condition(argument: Any, value: Any, place: str, schema: Any) -> Iterator[str]:
    if not list(errors(argument, value)):
        yield from errors(schema["then"], value, place)


def items(argument: Any, value: Any, place: str, _: Any) -> Iterator[str]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from errors(argument, one, f"{place}/{number}")


def key_names(argument: Any, value: Any, place: str, _: Any) -> Iterator[str]:
    for key in value if isinstance(value, dict) else ():
        yield from errors(argument, key, f"{place}/{key}")


def holds(test: Any) -> Any:
    def keyword(argument: Any, value: Any, place: str, _: Any) -> Iterator[str]:
        if not test(argument, value):
            yield f"{place} is not {argument}"

    return keyword


def number(test: Any) -> Any:
    return holds(lambda bound, value: not isinstance(value, (int, float)) or test(bound, value))


_KEYWORDS: dict[str, Any] = {
    "$ref": ref,
    "type": of_type,
    "properties": members,
    "additionalProperties": other_members,
    "propertyNames": key_names,
    "anyOf": any_of,
    "allOf": all_of,
    "if": condition,
    "then": lambda *_: iter(()),
    "items": items,
    "const": holds(lambda expected, value: value == expected),
    "enum": holds(lambda choices, value: value in choices),
    "required": holds(lambda keys, value: not isinstance(value, dict) or set(keys) <= value.keys()),
    "minLength": holds(lambda least, value: not isinstance(value, str) or len(value) >= least),
    "minItems": holds(lambda least, value: not isinstance(value, list) or len(value) >= least),
    "pattern": holds(lambda pattern, value: not isinstance(value, str) or re.search(pattern, value)),
    "minimum": number(lambda bound, value: value >= bound),
    "maximum": number(lambda bound, value: value <= bound),
    "exclusiveMinimum": number(lambda bound, value: value > bound),
}


def examples() -> list[tuple[str, str]]:
    """Every config in a document, with the document's name."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        found += [(path.name, text) for text in re.findall(r"```json\n(.*?)```", path.read_text(), re.DOTALL)]
    return [(name, text) for name, text in found if '"version": 2' in text]


def test_there_are_examples_in_the_readme_and_the_reference() -> None:
    assert {name for name, _ in examples()} >= {"README.md", "configuration.md"}


@pytest.mark.parametrize(("name", "text"), examples())
def test_an_example_of_the_documents_fits_the_schema_and_loads_without_a_word(tmp_path: Path, name: str, text: str) -> None:
    assert list(errors(SCHEMA, json.loads(text))) == []
    path = tmp_path / "c.json"
    path.write_text(text)
    config = load_config(path, {"HOME": str(tmp_path)}, BUNDLED)
    assert (config.problems, config.notes) == ((), ())


def test_the_schema_is_printed_as_json(run: Any) -> None:
    code, out, _ = run("config", "schema")
    assert code == 0
    assert json.loads(out) == SCHEMA


def sinks(**options: Any) -> dict[str, Any]:
    return {"sinks": {"a": {**PARQUET, "config": {"dir": "x", **options}}}}


GOOD: list[dict[str, Any]] = [
    {},
    sinks(),
    sinks(codec="ZSTD", zstd_level=9, before_tick="hyp query", start="now", takeover=True, datasets=["logs"]),
    sinks(before_tick=["hyp", "query"], before_tick_timeout_seconds=5.5, prefix="a/b", schedule="0 * * * *"),
    sinks(owners=["ada@example.com", "team:data platform"]),
    {"sinks": {"a": {**JSONL, "config": {"dir": "x", "compression": "zstd"}}}},
    {
        "plugins": [
            {"name": "@hypaware/format-parquet", "config": {"page_size": 1024.5}},
            {"name": "@hypaware/otel", "enabled": False},
        ]
    },
]
BAD: list[dict[str, Any]] = [
    {"version": 3},
    {"colour": 1},
    sinks(codec="lz5"),
    sinks(levl=3),
    sinks(row_group_bytes=1),
    sinks(datasets=[]),
    sinks(before_tick=[]),
    sinks(before_tick_timeout_seconds=0),
    sinks(takeover="yes"),
    sinks(owners="ada@example.com"),
    sinks(owners=["ada"]),
    sinks(owners=["team:"]),
    {"sinks": {"a": PARQUET}},
    {"sinks": {"a": {"writer": "@hypaware/format-parquet"}}},
    {"sinks": {"a/b": {**PARQUET, "config": {"dir": "x"}}}},
    {"sinks": {"a": {**JSONL, "config": {"dir": "x", "codec": "zstd"}}}},
    {"sinks": {"a": {**PARQUET, "confg": {}}}},
    {"plugins": [{"name": "@hypaware/format-parquet", "config": {"codec": 5}}]},
    {"plugins": [{"config": {}}]},
]


@pytest.mark.parametrize(("document", "good"), [*((one, True) for one in GOOD), *((one, False) for one in BAD)])
def test_the_schema_takes_what_the_program_takes(run: Any, tmp_path: Path, document: dict[str, Any], good: bool) -> None:
    assert (list(errors(SCHEMA, {"version": 2, **document})) == []) == good
    assert (run("config", "validate", "--config", write(tmp_path / "c.json", **document))[0] == 0) == good


def test_every_option_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    parts = [part.options for plugin in BUNDLED_PLUGINS for part in plugin.parts.values()]
    for key in {key for shape in (CommonOptions, *parts) for key in shape.model_fields}:
        assert f"`{key}`" in text, key
