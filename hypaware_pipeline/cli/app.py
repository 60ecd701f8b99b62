"""The `hypaware-pipeline` command.

Why commands import their work inside: `--help` must not wait seconds for Dagster.

Why exit codes are three: 0 everything asked for is exported, 1 some of it is not, 2 the request itself was bad. A cron job acts
on them.
"""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from hypaware_pipeline.errors import BadRequest, CacheMissing, ConfigErrors, PipelineError, StateUnusable

EXIT_SOME_NOT = 1
EXIT_BAD_INPUT = 2
EXPORT_WAITS_SECONDS = 60.0
"""Longer than a process that died keeps its lease."""

app = typer.Typer(
    name="hypaware-pipeline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Config file; else HYPAWARE_PIPELINE_CONFIG, else <HYP_HOME>/hypaware-pipeline.json."),
]
DatasetOption = Annotated[str, typer.Option(metavar="GLOB", help="Only datasets whose name matches.")]
FirstOption = Annotated[str | None, typer.Option("--from", metavar="DAY", help="Not before this UTC day.")]
LastOption = Annotated[str | None, typer.Option("--to", metavar="DAY", help="Not after this UTC day.")]


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(metadata.version("hypaware-pipeline"))
        raise typer.Exit


def main() -> None:
    """Run the command line; errors of ours become one message on stderr and an exit code."""
    try:
        _ensure_somewhere()
        app()
    except (BadRequest, CacheMissing, ConfigErrors, StateUnusable) as error:
        _say(error)
        sys.exit(EXIT_BAD_INPUT)
    except PipelineError as error:
        _say(error)
        sys.exit(EXIT_SOME_NOT)


def _ensure_somewhere() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise BadRequest("the directory this shell is in was removed; go to another one first") from None


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    """Ship HypAware's cache to your own storage, day by day."""


@app.command()
def init(
    to: Annotated[str | None, typer.Option(metavar="DIR", help="Where to export to; else ~/hypaware-exports.")] = None,
    config: ConfigOption = None,
) -> None:
    """Write a first config file, one sink of Parquet files, and say what there is to export."""
    from hypaware_pipeline.cli.init import init_command

    init_command(config, to, env=os.environ)


@app.command()
def check(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per finding, a line each.")] = False,
) -> None:
    """Say what is wrong with this installation and how to mend it. Exit code 1 if anything stops an export."""
    from hypaware_pipeline.cli.check import check_command

    raise typer.Exit(check_command(config, env=os.environ, as_json=as_json))


@app.command()
def export(
    sinks: Annotated[list[str] | None, typer.Argument(metavar="SINK", help="Sinks to export to; all when none is named.")] = None,
    config: ConfigOption = None,
    dataset: DatasetOption = "*",
    first: FirstOption = None,
    last: LastOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every day the cache holds, changed or not.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is due and export nothing.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for another process that writes the same dataset.")
    ] = EXPORT_WAITS_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per (sink, dataset, day), a line each.")] = False,
) -> None:
    """Export what is due now, through Dagster, recorded in its instance."""
    from hypaware_pipeline.cli.agenda import Selection
    from hypaware_pipeline.cli.export import export_command

    selection = Selection.parse(sinks or [], dataset=dataset, first=first, last=last, every=every)
    raise typer.Exit(export_command(config, selection, env=os.environ, dry_run=dry_run, as_json=as_json, wait_seconds=wait))


@app.command()
def plan(
    sinks: Annotated[list[str] | None, typer.Argument(metavar="SINK", help="Sinks to plan for; all when none is named.")] = None,
    config: ConfigOption = None,
    dataset: DatasetOption = "*",
    first: FirstOption = None,
    last: LastOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what is due, why, and what it comes to; what `export --dry-run` says. Exports nothing."""
    from hypaware_pipeline.cli.agenda import Selection
    from hypaware_pipeline.cli.plan import plan_command

    selection = Selection.parse(sinks or [], dataset=dataset, first=first, last=last, every=False)
    raise typer.Exit(plan_command(config, selection, env=os.environ, as_json=as_json))


@app.command()
def status(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what was exported last, what is due, when the next tick is, and what failed."""
    from hypaware_pipeline.cli.status import status_command

    status_command(config, env=os.environ, as_json=as_json)


@app.command()
def pause(sink: Annotated[str, typer.Argument(metavar="SINK")], config: ConfigOption = None) -> None:
    """Have nothing exported to a sink by itself until it is resumed."""
    from hypaware_pipeline.cli.resume import pause_command

    pause_command(config, sink, env=os.environ)


@app.command()
def resume(
    sink: Annotated[str, typer.Argument(metavar="SINK")],
    config: ConfigOption = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this dataset; the sink itself stays as it is.")
    ] = None,
    accept_rewind: Annotated[
        bool,
        typer.Option("--accept-rewind", help="Also delete from the sink what vanished when the cache was reset or restored."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Accept that without asking.")] = False,
) -> None:
    """Have a halted or paused sink go on, and days that failed tried again at once."""
    from hypaware_pipeline.cli.resume import resume_command

    raise typer.Exit(resume_command(config, sink, dataset, env=os.environ, accept_rewind=accept_rewind, yes=yes))


config_app = typer.Typer(help="The config file: its schema, and whether it is right.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@config_app.command("schema")
def config_schema() -> None:
    """Print a JSON Schema of the config file, for editors."""
    from hypaware_pipeline.cli.config import schema_command

    schema_command()


@config_app.command("validate")
def config_validate(config: ConfigOption = None) -> None:
    """Say everything that is wrong with the config file. Exit code 2 if anything is."""
    from hypaware_pipeline.cli.config import validate_command

    if not validate_command(config, env=os.environ):
        raise typer.Exit(EXIT_BAD_INPUT)


ledger_app = typer.Typer(help="The ledger: what was exported.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")


@ledger_app.command("rebuild")
def ledger_rebuild(
    sinks: Annotated[list[str] | None, typer.Argument(metavar="SINK", help="Sinks to look at; all when none is named.")] = None,
    config: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Record what is found without asking.")] = False,
) -> None:
    """Rebuild a lost ledger from the receipts at the destinations, and claim their directories for it."""
    from hypaware_pipeline.cli.ledger import rebuild_command

    raise typer.Exit(rebuild_command(config, sinks or [], env=os.environ, yes=yes))


@app.command("first-day")
def first_day(
    day: Annotated[str | None, typer.Argument(metavar="DAY", help="Where partitions are to begin, YYYY-MM-DD.")] = None,
    config: ConfigOption = None,
) -> None:
    """Show where partitions begin, or move it.

    After a move, reload the code location in the UI, or restart `hypaware-pipeline dev`.
    """
    from hypaware_pipeline.cli.first_day import first_day_command

    first_day_command(config, day, env=os.environ)


@app.command()
def demo(
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the demo's cache, config and exports go; else demo-data/ in a checkout."),
    ] = None,
) -> None:
    """Write a small cache, export it to two sinks, and query what landed."""
    from hypaware_pipeline.cli.demo import demo_command

    raise typer.Exit(demo_command(directory, env=os.environ))


@app.command()
def dev(
    config: ConfigOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI, on localhost.")] = 3000,
) -> None:
    """Run the UI and the daemon on localhost until stopped."""
    from hypaware_pipeline.cli.dev import dev_command

    dev_command(config, port=port, env=os.environ)


def _say(error: PipelineError) -> None:
    if isinstance(error, ConfigErrors):
        typer.echo(f"{error.path} cannot be used:", err=True)
        for each in error.errors:
            typer.echo(f"  {each}", err=True)
    else:
        typer.echo(f"error: {error}", err=True)
