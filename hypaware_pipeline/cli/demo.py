"""`hypaware-pipeline demo`: a small cache, exported to two sinks, read back with SQL. Needs no HypAware and no account.

Why it runs the very export a user runs: a demo that takes another road proves nothing.

Why the sinks are not called plainly `archive` and `feed`: Dagster's home, and with it the history of an asset, is shared with the
user's own configuration, and the days of a demo must not look like exported days of theirs.

Why a directory that is no demo is left alone: the demo starts afresh each time, and starting afresh removes things.
"""

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
import typer

from hypaware_pipeline.cli.agenda import Selection
from hypaware_pipeline.cli.export import export_due
from hypaware_pipeline.cli.reporting import Report
from hypaware_pipeline.errors import BadRequest
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.ledger import LEDGER_URL_VARIABLE
from hypaware_pipeline.state import checkout_root

CONFIG_NAME = "hypaware-pipeline.json"
_PARTS = ("cache", "exports", CONFIG_NAME, "hypaware-pipeline.state")
"""All a demo directory holds."""
_DAYS = 7
_SEED = 20

_CONFIG: dict[str, Any] = {
    "version": 2,
    "query": {"cache": {"dir": "cache"}},
    "sinks": {
        "demo-archive": {
            "writer": "@hypaware/format-parquet",
            "destination": "@hypaware/local-fs",
            "config": {"dir": "exports/archive", "schedule": "0 * * * *"},
        },
        "demo-feed": {
            "writer": "@hypaware/format-jsonl",
            "destination": "@hypaware/local-fs",
            "config": {"dir": "exports/feed", "schedule": "*/15 * * * *", "datasets": ["ai_gateway_messages", "logs"]},
        },
    },
}

_QUERY = """\
SELECT day, client_name AS client, count(DISTINCT session_id) AS sessions, count(*) AS messages,
       sum(CAST(attributes ->> '$.usage.output_tokens' AS INTEGER))::BIGINT AS output_tokens
FROM read_parquet('{files}', hive_partitioning = true)
GROUP BY day, client ORDER BY day, client"""


def demo_command(directory: Path | None, *, env: Mapping[str, str]) -> int:
    """Write, export, query, and say where everything is; returns the exit code.

    Raises:
        BadRequest: the directory holds something that is no demo, or the ledger was to be one that is no demo's.
    """
    if env.get(LEDGER_URL_VARIABLE):
        raise BadRequest(
            f"{LEDGER_URL_VARIABLE} is set, and the demo would be recorded in your own ledger; unset it for the demo"
        )
    home = (directory or _default_directory()).absolute()
    _start_afresh(home)
    installation = Installation.load(home / CONFIG_NAME, env)
    typer.echo(f"Writing a cache of {_DAYS} days in HypAware's format to {_shown(home / 'cache')}")
    _write_cache(home / "cache", installation)
    typer.echo("Exporting it to two sinks through Dagster\n")
    exit_code = export_due(installation, Selection(), Report(as_json=False), env=env)
    if exit_code:
        return exit_code  # why was said, and there may be nothing to show
    _show_what_landed(home)
    _show_query(home)
    typer.echo(f"\nThe same in Dagster's UI, with every day and its receipt: {_dev_command(home)}")
    return 0


def _default_directory() -> Path:
    checkout = checkout_root()
    return (
        checkout / "demo-data" if checkout else Path(platformdirs.user_state_dir("hypaware-pipeline", appauthor=False)) / "demo"
    )


def _start_afresh(home: Path) -> None:
    strange = sorted(path.name for path in home.iterdir() if path.name not in _PARTS) if home.is_dir() else []
    if strange or (home.exists() and not home.is_dir()):
        what = f"holds {', '.join(strange[:3])}" if strange else "is no directory"
        raise BadRequest(f"{home} {what}; the demo starts afresh each time and wants a directory of its own, see --dir")
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.mkdir(parents=True)
        (home / CONFIG_NAME).write_text(json.dumps(_CONFIG, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"the demo cannot be written to {home} ({error.strerror}); name another directory with --dir") from None


def _write_cache(root: Path, installation: Installation) -> None:
    from hypaware_pipeline.demo.generate import demo_cache  # pyarrow and duckdb, 0.6 s

    demo_cache(root, days=_DAYS, today=installation.clock().date(), seed=_SEED)


def _show_what_landed(home: Path) -> None:
    for sink, entry in _CONFIG["sinks"].items():
        root = home / entry["config"]["dir"]
        files = sorted(path for path in root.rglob("[!.]*") if path.is_file())
        newest = [path for path in files if path.parent == files[-1].parent]
        typer.echo(f"\n{sink}: {len(files)} files in {_shown(root)}, for example in {newest[0].parent.relative_to(root)}")
        for path in newest:
            typer.echo(f"  {path.name}  ({path.stat().st_size} bytes)")


def _show_query(home: Path) -> None:
    import duckdb  # 0.2 s

    pattern = home / "exports" / "archive" / "ai_gateway_messages" / "*" / "*.parquet"
    query = _QUERY.format(files=str(pattern).replace("'", "''"))
    typer.echo(f"\n{_QUERY.format(files=_shown(pattern))}\n")
    with duckdb.connect() as connection:
        typer.echo(str(connection.sql(query)).rstrip())


def _dev_command(home: Path) -> str:
    config = shlex.quote(_shown(home / CONFIG_NAME))
    return f"make dev CONFIG={config}" if checkout_root() == Path.cwd() else f"hypaware-pipeline dev --config {config}"


def _shown(path: Path) -> str:
    """A path as short as it can be written from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
