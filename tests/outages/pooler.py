"""PgBouncer before a test's PostgreSQL, in transaction mode: each transaction may get another server connection."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from chaos.site import free_port
from drydock.engines import POSTGRESQL
from tests.outages.servers import OwnServers
from tests.peers import require

CONFIG = """\
[databases]
drydock = host={sockets} dbname=drydock user=drydock
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
logfile = {log}
pidfile = {pid}
"""
PREPARES = (1, 22)
"""The first version with which prepared statements may be left on."""


class Pooled(OwnServers):
    """Servers given by URL, PostgreSQL through PgBouncer."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.port = free_port()
        self._pooler: subprocess.Popen[bytes] | None = None

    def start(self, name: str) -> None:
        """Start one of them; `pooler` is one, too."""
        if name != "pooler":
            super().start(name)
            return
        folder = self.config.state / "pooler"
        folder.mkdir(exist_ok=True)
        # As root it refuses to run; the account of PostgreSQL may enter the folder of its socket.
        account = self.config.layout.data(POSTGRESQL).stat().st_uid
        os.chown(folder, account, account)
        config = folder / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(sockets=self.config.layout.sockets, port=self.port, log=folder / "log", pid=folder / "pid")
        )
        config.chmod(0o644)
        become: dict[str, Any] = {"user": account, "group": account, "extra_groups": []} if os.geteuid() == 0 else {}
        self._pooler = subprocess.Popen([require("pgbouncer"), "--quiet", str(config)], **become)
        until = time.monotonic() + 20
        while not self._listens():
            assert self._pooler.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, name: str, number: signal.Signals) -> None:
        """Stop one of them."""
        if name != "pooler":
            super().stop(name, number)
        elif self._pooler is not None:
            self._pooler.send_signal(number)
            self._pooler.wait(30)
            self._pooler = None

    def environment(self) -> dict[str, str]:
        """The pooler in place of PostgreSQL."""
        prepares = version() >= PREPARES
        return {
            **super().environment(), "DATABASE_URL": f"postgresql://drydock@127.0.0.1:{self.port}/drydock",
            "DRYDOCK_PREPARED_STATEMENTS": str(int(prepares)),
        }  # fmt: skip

    def close(self) -> None:
        """Stop what still runs."""
        self.stop("pooler", signal.SIGKILL)
        super().close()


def version() -> tuple[int, int]:
    """Of the installed PgBouncer."""
    said = subprocess.run([require("pgbouncer"), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])
