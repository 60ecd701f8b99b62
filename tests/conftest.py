"""What holds for every test: how examples are generated, and what most tests begin with.

Why the usual run draws the same examples every time: a change must not turn red by luck. New ones are looked for by
`make test-long`, which prints the seed that repeats it.

Why an instance of Dagster is shared by the tests of a file: making one takes a second, emptying it does not. A PostgreSQL server,
which takes as long, is shared by all tests of a process; each makes a database of its own.

Why some files stay together: the tests of README.md share one installation, which takes minutes, and of the daemons of the others
one at a time is enough. pytest-xdist's own groups are names appended to test ids, which pytest 9.2 no longer lets it append.
"""

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.builders import a_cache

TOGETHER = {"test_readme.py": "readme", "test_daemon.py": "daemon", "test_browser.py": "daemon", "test_dev.py": "daemon"}

# No deadlines: how long an example takes says nothing about the code on a machine that others share.
settings.register_profile("usual", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "long", max_examples=2_000, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("usual")


class Together(LoadScopeScheduling):
    """Hands every test to the next free process, but those of some files to one. Such files come first: they take longest."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].rpartition("/")[2]
        return TOGETHER.get(file, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Asked of the process that hands tests out."""
    return Together(config, log)


@pytest.fixture
def cache(tmp_path):
    """An empty cache, to be filled."""
    return a_cache(tmp_path / "cache")


@pytest.fixture
def home(tmp_path):
    """Where an installation lives; not made yet."""
    return tmp_path / "home"


@pytest.fixture
def place():
    """A directory, in memory if that can be: for tests that would wait for a disk most of the time."""
    from tests.crash_scenes import in_memory  # the engine, and not for tests that do without

    with in_memory() as directory:
        yield directory


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line for a user whose home is `tmp_path`."""
    from tests.command_line import ACommandLine  # the command line, and not for tests that do without

    return ACommandLine(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server."""
    from tests.postgres import APostgres  # its driver, a quarter of a second, and not for tests that do without

    with APostgres() as server:
        yield server


@pytest.fixture(scope="module")
def shared_instance(tmp_path_factory):
    """For `instance` alone."""
    import dagster as dg  # two seconds, and not for tests that do without

    with dg.instance_for_test(temp_dir=str(tmp_path_factory.mktemp("dagster"))) as instance:
        yield instance


@pytest.fixture
def instance(shared_instance):
    """An instance of Dagster on disk, without history."""
    shared_instance.wipe()
    return shared_instance
