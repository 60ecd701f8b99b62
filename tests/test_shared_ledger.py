"""An installation whose ledger lies on PostgreSQL: exports through Dagster, with the server there and gone."""

from urllib.parse import quote

import dagster as dg
import pytest

from hypaware_pipeline.errors import LedgerUnreadable
from hypaware_pipeline.export.beginnings import beginnings
from hypaware_pipeline.export.blueprint import Blueprint
from hypaware_pipeline.export.health import state_findings
from hypaware_pipeline.ledger import LEDGER_URL_VARIABLE
from hypaware_pipeline.model import DatasetName, Day, SinkName
from hypaware_pipeline.orchestration.build import build_definitions, definitions_of
from hypaware_pipeline.orchestration.runner import Request, run_requests
from tests.installations import JSONL, AnInstallation
from tests.postgres import SECRET, APostgres

LOGS = DatasetName("logs")
FEED = SinkName("feed")


@pytest.fixture
def url(postgres):
    return postgres.new_database()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    monkeypatch.delenv(LEDGER_URL_VARIABLE, raising=False)


def run(installation, instance, *days):
    outcomes = []
    request = Request(FEED, LOGS, [Day(day) for day in days])
    (report,) = run_requests(installation.installation, [request], instance=instance, observer=outcomes.append)
    return [(outcome.day, outcome.status) for outcome in outcomes], report.error


def secrets_in(text):
    return [secret for secret in (SECRET, quote(SECRET, safe="")) if secret in text]


def test_an_export_through_dagster_is_recorded_in_the_database_and_its_password_nowhere(cache, home, tmp_path, url, monkeypatch):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    installation = AnInstallation(home, cache.root, ledger_url=url)
    monkeypatch.setenv(LEDGER_URL_VARIABLE, url)
    dagster_home = tmp_path / "dagster"
    dagster_home.mkdir()
    with dg.DagsterInstance.local_temp(str(dagster_home)) as instance:
        assert run(installation, instance, "2026-06-04") == ([("2026-06-04", "exported")], None)
        with installation.installation.open_ledger() as ledger:
            assert set(ledger.receipts(FEED, LOGS)) == {"2026-06-04"}
        assert installation.due() == ["2026-06-05"]
        monkeypatch.delenv(LEDGER_URL_VARIABLE)
        outcomes, error = run(installation, instance, "2026-06-05")
    assert outcomes == []
    assert "HYPAWARE_LEDGER_URL is not set here" in error
    (finding,) = state_findings(installation.installation)
    assert finding.text.startswith("postgresql://ada@127.0.0.1:")
    assert not secrets_in(f"{error}{finding}{installation.installation}{Blueprint.draw(installation.installation).to_text()}")
    assert not installation.installation.state.ledger.exists()
    stored = {path: path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    assert not [path for path, text in stored.items() if secrets_in(text)]


def test_machines_that_share_a_ledger_do_not_export_what_another_did(cache, tmp_path, url):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    sinks = {"feed": {**JSONL, "config": {"dir": str(tmp_path / "shared")}}}
    one, other = (AnInstallation(tmp_path / name, cache.root, sinks=sinks, ledger_url=url) for name in ("one", "other"))
    assert [outcome.status for outcome in one.export(["2026-06-04"])] == ["exported"]
    assert other.due() == ["2026-06-05"]
    assert [outcome.status for outcome in other.export()] == ["exported"]
    assert one.due() == []


def test_with_the_server_gone_definitions_load_runs_fail_clearly_and_nothing_is_touched(cache, home, instance, monkeypatch):
    cache.with_day("2026-06-04")
    with APostgres() as server:
        url = server.new_database()
        monkeypatch.setenv(LEDGER_URL_VARIABLE, url)
        installation = AnInstallation(home, cache.root, ledger_url=url)
        assert run(installation, instance, "2026-06-04") == ([("2026-06-04", "exported")], None)
        cache.with_day("2026-06-04").with_day("2026-06-05")
        before = lying(installation)
        server.stop()

        defs = definitions_of(Blueprint.draw(installation.installation))
        dg.Definitions.validate_loadable(defs)
        assert beginnings(installation.installation).note.startswith("the first day could not be looked up: ledger postgresql://")
        outcomes, error = run(installation, instance, "2026-06-04", "2026-06-05")
        assert outcomes == []
        assert "Connection refused" in error
        assert "check that the server runs, that this machine reaches it, and that HYPAWARE_LEDGER_URL names it" in error
        assert not secrets_in(error)
        with pytest.raises(LedgerUnreadable):
            installation.due()
        assert lying(installation) == before

        server.start()
        assert installation.due() == ["2026-06-04", "2026-06-05"]
        outcomes, error = run(installation, instance, "2026-06-04", "2026-06-05")
        assert (outcomes, error) == ([("2026-06-04", "exported"), ("2026-06-05", "exported")], None)
        assert sum(installation.rows().values()) == 9


def test_a_server_that_goes_away_while_a_day_is_exported_leaves_it_due(cache, home):
    cache.with_day("2026-06-04").with_day("2026-06-05")
    with APostgres() as server:
        installation = AnInstallation(home, cache.root, ledger_url=server.new_database())
        installation.export(["2026-06-04"])
        before = lying(installation)
        at_noon = installation.installation.clock

        def clock():
            if server.runs:  # asked for the time by the receipt, after the object is written
                server.stop()
            return at_noon()

        outcomes = installation.export(["2026-06-05"], clock=clock)
        assert [(outcome.day, outcome.status) for outcome in outcomes] == [("2026-06-05", "failed")]
        assert "check that the server runs" in outcomes[0].error
        server.start()
        assert lying(installation).items() >= before.items()
        assert installation.due() == ["2026-06-05"]
        assert [outcome.status for outcome in installation.export()] == ["exported"]
        assert sum(installation.rows().values()) == 6


def lying(installation):
    """Everything at the destination."""
    return {path: path.read_bytes() for path in installation.out().rglob("*") if path.is_file()}


def test_what_is_no_url_shows_as_an_asset_that_says_so(cache, home):
    config = AnInstallation(home, cache.root).installation.config.path
    defs = build_definitions(config, env={"HOME": str(home), LEDGER_URL_VARIABLE: "mysql://ada:s3cr3t@host/x"})
    (asset,) = defs.resolve_asset_graph().asset_nodes
    assert "HYPAWARE_LEDGER_URL is no URL of a PostgreSQL database" in asset.description
    assert "s3cr3t" not in asset.description
