"""The command line as its users have it: a process of its own, on private engines in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from drydock.engines import BROKER, POSTGRESQL, Config, ensure, leave, wait_until_stopped
from drydock.engines.layout import DATABASE
from tests import migrated
from tests.cli.forks import Forks

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 100


class Cli:
    """Runs `drydock` in an environment; `codes` of the run are asserted unless told otherwise."""

    def __init__(self, environment: dict[str, str], forks: Forks | None = None) -> None:
        self.environment, self.forks = environment, forks

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it and leave it running."""
        return subprocess.Popen(
            self._command(words), env=self.environment, cwd=ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *words: str, code: int | None = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = self._command(words)
        if self.forks is not None and self.forks.suits(self.environment):
            done = self.forks.run(command[3:], stdin, PATIENCE, self.environment)
        else:
            done = subprocess.run(
                command, env=self.environment, cwd=ROOT, text=True, input=stdin, capture_output=True, timeout=PATIENCE
            )
        if code is not None:
            assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def each(self, commands: Sequence[Sequence[str]]) -> list[subprocess.CompletedProcess[str]]:
        """Run many, one after the other in one process, each to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.sequence"], env=self.environment, cwd=ROOT, text=True,
            input=json.dumps(commands), capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = zip(commands, json.loads(done.stdout), strict=True)
        return [subprocess.CompletedProcess(words, code, out, err) for words, (code, out, err) in found]

    def json(self, *words: str, code: int | None = 0, stdin: str = "") -> Any:
        """What it says with --json."""
        return json.loads(self(*words, "--json", code=code, stdin=stdin).stdout)

    def also(self, **environment: str) -> Cli:
        """The same with more in its environment."""
        return Cli({**self.environment, **environment}, self.forks)

    def _command(self, words: Sequence[str]) -> list[str]:
        words = list(words)
        if "--json" in words and "--" in words:
            words.remove("--json")
            words.insert(words.index("--"), "--json")
        return [sys.executable, "-m", "drydock", *words]


def _environment(state: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    for name in ("DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE"):
        kept.pop(name, None)
    return kept | {"DRYDOCK_STATE": str(state), "DRYDOCK_ENGINE_DURABLE": "0", "DRYDOCK_ENGINE_LINGER_SECONDS": "0.2"}


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """A state folder whose engines stay up while the tests run."""
    folder = Path(tempfile.mkdtemp(prefix="dd-cli-", dir="/tmp"))
    if os.geteuid() == 0:
        folder.chmod(0o711)
    config = Config(state=folder, linger=0.2, durable=False)
    ensure(config, POSTGRESQL)
    ensure(config, BROKER)
    migrated.fill(config.layout.sockets, DATABASE)
    yield folder
    leave(folder)
    assert wait_until_stopped(config, 90)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cli(state: Path) -> Iterator[Cli]:
    """`drydock` on private engines."""
    environment = _environment(state)
    forks = Forks(environment, ROOT, state / "forks")
    yield Cli(environment, forks)
    forks.close()


@pytest.fixture(scope="session")
def host(cli: Cli) -> str:
    """A blueprint that leases this machine."""
    cli("blueprints", "add", "this", "local_host", "slots=4")
    return "host"


@pytest.fixture(scope="session")
def fakes(cli: Cli) -> Callable[..., str]:
    """Make a blueprint of the fake kind for one test; its name."""
    made: list[str] = []

    def make(*options: str) -> str:
        made.append(f"fakes{len(made)}")
        cli("blueprints", "add", made[-1], "fake", *options)
        return made[-1]

    return make


@pytest.fixture(scope="session")
def servers(state: Path) -> Iterator[Cli]:
    """`drydock` on PostgreSQL and a broker given by URL, with a database of its own."""
    layout = Config(state=state).layout
    from tests.settings import KEYS

    make_database(layout.sockets, "servers")
    urls = {
        "DATABASE_URL": f"postgresql://drydock@/servers?host={layout.sockets}",
        "BROKER_URL": layout.broker_url,
        "DRYDOCK_BROKER_PREFIX": "servers:",
    }
    environment = _environment(state) | KEYS | urls
    forks = Forks(environment, ROOT, state / "forks-servers")
    yield Cli(environment, forks)
    forks.close()


def make_database(sockets: Path, name: str) -> None:
    """A database beside the others of these engines."""
    import psycopg

    with psycopg.connect(host=str(sockets), user="drydock", dbname="drydock", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
