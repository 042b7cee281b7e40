"""PostgreSQL and a broker that a test stops and starts: given by URL, or private engines that their keeper restarts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil

from drydock.engines import BROKER, POSTGRESQL, Config, ensure, leave, wait_until_stopped
from drydock.engines.cluster import Cluster
from drydock.engines.layout import prepare
from drydock.engines.process import occupants
from drydock.engines.valkey import Broker
from tests.settings import KEYS

FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
"""How PostgreSQL is told to stop, as `pg_ctl stop -m` does."""


class OwnServers:
    """Servers given by URL. They stay away for as long as the test wants."""

    def __init__(self, state: Path) -> None:
        self.config = Config(state=state, durable=False, deadline=60)
        prepare(self.config)
        self._engines: dict[str, Cluster | Broker] = {POSTGRESQL: Cluster(self.config), BROKER: Broker(self.config)}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one of them; returns when it answers."""
        self._children[name] = self._engines[name].start()

    def stop(self, name: str, number: signal.Signals) -> None:
        """Stop one of them; returns when it has ended."""
        child = self._children.pop(name)
        child.send_signal(number)
        child.wait(60)

    def environment(self) -> dict[str, str]:
        """What programs are given to find them."""
        layout = self.config.layout
        return KEYS | {
            "DATABASE_URL": f"postgresql://drydock@/drydock?host={layout.sockets}",
            "BROKER_URL": layout.broker_url,
        }

    def close(self) -> None:
        """Stop what still runs."""
        for name in list(self._children):
            self.stop(name, signal.SIGTERM if name == BROKER else FAST)


class PrivateEngines:
    """Engines of Drydock's own; whatever stops them, the keeper starts them again at once."""

    def __init__(self, state: Path) -> None:
        self.config = Config(state=state, durable=False, deadline=60, linger=0.5)

    def start(self, name: str) -> None:
        """See that one of them runs."""
        ensure(self.config, name, again=True)

    def stop(self, name: str, number: signal.Signals) -> None:
        """Stop one of them; returns when that process has ended."""
        process = self._process(name)
        process.send_signal(number)
        psutil.wait_procs([process], timeout=60)

    def _process(self, name: str) -> psutil.Process:
        data = self.config.layout.data(name)
        if name == POSTGRESQL:
            return psutil.Process(int((data / "postmaster.pid").read_text().splitlines()[0]))
        return occupants(data, "")[0]

    def environment(self) -> dict[str, str]:
        """What programs are given to find them."""
        return {}

    def close(self) -> None:
        """Leave them; they end with their last user."""
        leave(self.config.state)
        assert wait_until_stopped(self.config, 60)


def environment(servers: OwnServers | PrivateEngines, **more: str) -> dict[str, str]:
    """The environment of every program of an installation on these servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    for name in ("DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE"):
        kept.pop(name, None)
    state = servers.config.state
    return {
        **kept, "DRYDOCK_STATE": str(state), "DRYDOCK_FAKE_CLOUD": str(state / "cloud"),
        "DRYDOCK_ENGINE_DURABLE": "0", "DRYDOCK_ENGINE_LINGER_SECONDS": "0.5",
        "DRYDOCK_STEP_TOKEN_SECONDS": "300",
        "DRYDOCK_STEP_BACKOFF_SECONDS": "0.1", "DRYDOCK_STEP_BACKOFF_LIMIT_SECONDS": "1",
        "DJANGO_SETTINGS_MODULE": "drydock.settings", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore",
        **servers.environment(), **more,
    }  # fmt: skip
