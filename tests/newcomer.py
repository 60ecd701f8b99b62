"""A person with an empty home, HypAware's cache and a fresh clone, who does what README.md says.

Why files are copied and not cloned: what is to be tried is what a commit would hold, changes and new files included.

Why the environment is nearly empty: a cron job, a service and a new account have no more. What leads pip to its packages is the
machine's and stays.

Why this person is also the service manager: a test machine need not run systemd or launchd. What a manager would start is read
from the installed file and started as it would, from the manager's directory and with its environment.
"""

import configparser
import os
import plistlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from tests.daemon import ROOT
from tests.waiting import wait_for

HANGS_AFTER = 900
"""Seconds, after which a command that was to end is given up."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
_PACKAGES = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class Newcomer:
    """Runs commands and services; every one has to work."""

    def __init__(self, directory: Path, cache: Path) -> None:
        self.home = directory / "home"
        self.checkout = directory / "clone"
        shutil.copytree(cache, self.home / ".hyp" / "hypaware" / "cache")
        (self.home / "Library" / "Logs").mkdir(parents=True)  # every Mac's home has it
        _copy_what_git_knows(self.checkout)
        self._deployment = directory / "deployment"

    def run(self, command: str) -> str:
        """Run a line of a shell, from the checkout; returns what it printed."""
        return self._end(command, cwd=self.checkout, env=self._env())

    def run_as_cron(self, command: str) -> str:
        """Run it as cron does."""
        return self._end(command, cwd=self.home, env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"})

    def run_in_deployment(self, command: str) -> str:
        """Run it where a deployment's environment is active, which has Dagster and everything else but this project."""
        if not self._deployment.exists():
            python = self.checkout / ".venv" / "bin" / "python"
            self._end(f"'{python}' -m venv '{self._deployment}'", cwd=self.home, env=self._env())
            (packages,) = self._deployment.glob("lib/python*/site-packages")
            (installed,) = self.checkout.glob(".venv/lib/python*/site-packages")
            (packages / "what_a_deployment_has.pth").write_text(f"{installed}\n")
        env = self._env()
        return self._end(command, cwd=self.checkout, env={**env, "PATH": f"{self._deployment}/bin:{env['PATH']}"})

    def serve(self, command: str) -> None:
        """Start a line of a shell that runs until it is stopped; see it answer, stop it, see it end."""
        line = f"exec {command} --port {{}}"
        if command.startswith("make "):  # which says that it was stopped
            line = f'trap : TERM; {command} ARGS="--port {{}}" || true'
        self._serve(["/bin/sh", "-c", line], cwd=self.checkout, env=self._env())

    def serve_as_systemd(self, unit: str) -> None:
        """Start an installed unit of the user; see it answer, stop it, see it end."""
        path = self.home / ".config" / "systemd" / "user" / f"{unit}.service"
        read = configparser.RawConfigParser(strict=False)
        read.read_string(path.read_text())
        command = shlex.split(read["Service"]["ExecStart"].replace("%h", str(self.home)))
        self._verify_unit(path)
        self._serve([*command, "--port", "{}"], cwd=self.home, env={"HOME": str(self.home), "PATH": _PATH})

    def serve_as_launchd(self, plist: str) -> None:
        """Start an installed agent; see it answer, stop it, see it end."""
        agent = plistlib.loads(Path(plist.replace("~", str(self.home))).read_bytes())
        log = Path(agent["StandardErrorPath"])
        env = {"HOME": str(self.home), **agent["EnvironmentVariables"]}
        self._serve([*agent["ProgramArguments"], "--port", "{}"], cwd=Path("/"), env=env, log=log)

    def _verify_unit(self, path: Path) -> None:
        """Let systemd's own judge look at a unit, where there is one."""
        judge = shutil.which("systemd-analyze")
        if judge is not None:
            env = {**self._env(), "XDG_RUNTIME_DIR": str(self.home)}
            said = subprocess.run([judge, "verify", "--user", path], env=env, capture_output=True, text=True)
            assert said.returncode == 0, said.stderr
            assert path.name not in said.stderr, said.stderr

    def _serve(self, template: list[str], *, cwd: Path, env: dict[str, str], log: Path | None = None) -> None:
        port = _a_free_port()
        command = [part.replace("{}", str(port)) for part in template]
        log = log or self.home.parent / "served.log"
        with log.open("ab") as printed:
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdout=printed, stderr=printed, start_new_session=True, preexec_fn=_default_signals
            )
        try:
            wait_for(f"{shlex.join(command)} to answer", lambda: _answers(port, process, log))
            os.killpg(process.pid, signal.SIGTERM)
            code = process.wait(timeout=HANGS_AFTER)
            assert code == 0, f"{shlex.join(command)} ended with {code}: {_end_of(log)}"
            wait_for("all of its processes to end", lambda: not _group_lives(process.pid))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _end(self, command: str, *, cwd: Path, env: dict[str, str]) -> str:
        line = ["/bin/sh", "-c", command]
        done = subprocess.run(
            line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANGS_AFTER
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def _env(self) -> dict[str, str]:
        packages = {name: value for name, value in os.environ.items() if name.upper().startswith(_PACKAGES)}
        packages["PIP_COMPILE"] = "0"  # most of an environment's modules are never imported: half a minute
        packages.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
        settings = Path.home() / ".config" / "pip" / "pip.conf"
        if settings.exists():
            packages.setdefault("PIP_CONFIG_FILE", str(settings))
        python = Path(sys.base_prefix) / "bin"
        return {**packages, "HOME": str(self.home), "PATH": f"{self.home}/.local/bin:{_PATH}:{python}"}


def _copy_what_git_knows(target: Path) -> None:
    # A checkout that another user made, as some CI does, is read all the same.
    listed = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for path in (ROOT / name for name in names if name):
        if path.is_file():  # one that was removed is listed until that is committed
            copy = target / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(port: int, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, _end_of(log)
    query = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } ... on PythonError { message } } }"
    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/graphql", json={"query": query}, timeout=60).json()
    except httpx.HTTPError:
        return False
    loaded = answer["data"]["repositoriesOrError"]
    assert "message" not in loaded, loaded
    return bool(loaded["nodes"])


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _default_signals() -> None:
    """Not those of a shell's background, which Dagster's children would inherit and not end on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
