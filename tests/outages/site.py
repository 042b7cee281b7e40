"""An installation under load: servers that a test stops, worker, beat, web, and clients that lease all the time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from chaos import processes
from chaos.site import free_port
from tests.outages.servers import OwnServers, PrivateEngines, environment
from tests.outages.setting import OWNERS

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the web process answered."""

    status: int
    headers: dict[str, str]
    body: str


class Site:
    """Programs and their logs; `with` starts and ends them."""

    def __init__(self, servers: OwnServers | PrivateEngines, **more: str) -> None:
        self.servers, self.port = servers, free_port()
        self.environment = environment(servers, **more)
        self.folder = servers.config.state / "said"
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._heard: dict[str, int] = {}

    def __enter__(self) -> Site:
        (self.servers.config.state / "cloud").mkdir(exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        self.run("-m", "tests.outages.setting")
        self.start("worker", processes.worker(0))
        self.start("beat", processes.beat())
        self.start("web", processes.web(self.port))
        self.until(lambda: self.get("/readyz").status == 200)
        return self

    def load(self) -> None:
        """Start the clients, and wait until they lease."""
        self._end_load()  # a test that is repeated may have left its clients
        for owner in OWNERS:
            self.start(f"load-{owner}", [sys.executable, "-m", "tests.outages.load", owner])
        self.goes_on(time.time())
        self._heard = {name: len(self.said(name)) for name in self._programs}

    def heard(self) -> dict[str, str]:
        """What each program has said since the clients were started, leases aside."""
        said = {name: self.said(name)[before:] for name, before in self._heard.items()}
        return {name: re.sub(r"^\{.*\n", "", text, flags=re.MULTILINE) for name, text in said.items()}

    def run(self, *words: str) -> str:
        """Run a Python program to its end."""
        done = subprocess.run(
            [sys.executable, *words], env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a program whose output goes to a log of its own."""
        with (self.folder / f"{name}.log").open("ab") as output:
            program = subprocess.Popen(
                command, env=self.environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE if name.startswith("load") else subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._programs[name] = program
        return program

    def said(self, name: str) -> str:
        """The log of a program so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def everything(self) -> str:
        """Open leases, runs and all logs, for a failure's message."""
        parts = [f"== {name}\n{self.said(name)[-3000:]}" for name in self._programs]
        with contextlib.suppress(psycopg.Error), self.database() as database:
            parts += [f"== {query}\n{database.execute(query).fetchall()}" for query in (_UNENDED, _RUNS, _SESSIONS)]
        return "\n".join(parts)

    def leased(self, owner: str) -> list[dict[str, Any]]:
        """What a client has leased so far."""
        lines = self.said(f"load-{owner}").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def get(self, path: str) -> Answer:
        """Ask the web process, as an operator."""
        as_ = {"Authorization": f"Bearer {self._kept('token')}"} if path.startswith("/api/") else {}
        as_ = {"Cookie": f"sessionid={self._kept('session')}"} if path.startswith("/admin/") else as_
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=as_)
        try:
            with urllib.request.urlopen(asked, timeout=20) as found:
                return Answer(status=found.status, headers=dict(found.headers), body=found.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(status=error.code, headers=dict(error.headers), body=error.read().decode())
        except OSError as error:
            return Answer(status=0, headers={}, body=str(error))

    def until(self, done: Any, seconds: float = 60) -> float:
        """Wait for something; the seconds that it took. Fails when a program has ended, or with all logs."""
        began = time.monotonic()
        while not done():
            ended = [name for name, one in self._programs.items() if one.poll() is not None]
            assert not ended, f"{ended} ended\n{self.everything()}"
            assert time.monotonic() - began < seconds, self.everything()
            time.sleep(0.05)
        return time.monotonic() - began

    def goes_on(self, since: float) -> dict[str, float]:
        """Wait until every client has a lease that it asked for after `since`, and the web process answers: seconds."""
        took = {}
        waiting = {**{owner: lambda owner=owner: self._granted(owner, since) for owner in OWNERS},
                   "web": lambda: self.get("/api/v1/leases").status == 200,
                   "console": lambda: self.get("/admin/").status == 200}  # fmt: skip

        def look() -> bool:
            for name, done in waiting.items():
                if name not in took and done():
                    took[name] = round(time.time() - since, 2)
            return len(took) == len(waiting)

        self.until(look)
        return took

    def _granted(self, owner: str, since: float) -> bool:
        return any(one["active"] > since for one in self.leased(owner)[-3:])

    def _kept(self, name: str) -> str:
        return (self.folder / name).read_text()

    def database(self) -> psycopg.Connection[Any]:
        """A connection of the test's own."""
        where = str(self.servers.config.layout.sockets)
        return psycopg.connect(host=where, user="drydock", dbname="drydock", autocommit=True)

    def settle(self) -> None:
        """End the clients, and wait until every lease is over and every share returned."""
        for name, code in self._end_load().items():
            assert code == 0, self.said(name)[-5000:]
        with self.database() as database:
            # A step whose answer was lost with the database belongs to its token for a minute.
            self.until(lambda: not database.execute(_OPEN).fetchall(), 120)
            assert database.execute(_TWICE).fetchall() == []
            assert database.execute(_USED).fetchall() == []

    def _end_load(self) -> dict[str, int]:
        """Let the clients end. Returns their exit codes."""
        clients = {name: one for name, one in self._programs.items() if one.stdin is not None}
        for client in clients.values():
            assert client.stdin is not None
            client.stdin.close()
        codes = {name: client.wait(60) for name, client in clients.items()}
        for name in clients:
            del self._programs[name]
        return codes

    def __exit__(self, *_: object) -> None:
        for program in self._programs.values():
            program.terminate()
        for program in self._programs.values():
            if program.stdin is not None:
                program.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


_OPEN = "SELECT id FROM leases_lease WHERE state NOT IN ('destroyed', 'broken')"
_UNENDED = f"SELECT now(), * FROM leases_lease WHERE id IN ({_OPEN})"
_RUNS = "SELECT * FROM leases_run"
_SESSIONS = "SELECT pid, state, wait_event, xact_start, query FROM pg_stat_activity WHERE datname = 'drydock'"
_TWICE = """
    SELECT a.lease_id, b.lease_id FROM leases_event a JOIN leases_event b
        ON a.resource_id = b.resource_id AND a.lease_id < b.lease_id AND a.kind = 'lease.acquired' AND b.kind = a.kind
    JOIN leases_lease x ON x.id = a.lease_id JOIN leases_lease y ON y.id = b.lease_id
    WHERE a.at < y.ended_at AND b.at < x.ended_at AND x.exclusive AND y.exclusive"""
_USED = """
    SELECT r.id FROM leases_resource r LEFT JOIN leases_share s ON s.resource_id = r.id
    GROUP BY r.id HAVING r.used_slots <> coalesce(sum(s.slots), 0)"""

_PROBLEM = re.compile(r" (WARNING|ERROR|CRITICAL) |: (WARNING|ERROR|CRITICAL)/|^Traceback")


def problems(log: str) -> list[str]:
    """The lines of a log that tell of trouble."""
    return [line for line in log.splitlines() if _PROBLEM.search(line)]
