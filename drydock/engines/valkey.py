"""The private broker. It carries only hints, so it stores nothing on disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from drydock.engines import process
from drydock.engines.account import engine_account
from drydock.engines.layout import BROKER, POSTGRESQL, Config, make_private
from drydock.engines.programs import broker_program

OPTIONS = {
    "port": "0",
    "unixsocketperm": "700",
    "save": "",
    "appendonly": "no",
    "maxmemory": "256mb",
    "proto-max-bulk-len": "1mb",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    "databases": "16",
}


class Broker:
    """The Valkey of a state folder. Only the keeper creates one."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layout = config.layout
        self.data = self.layout.data(BROKER)
        self.log = self.layout.log(BROKER)
        beside = self.layout.data(POSTGRESQL)
        self.account = engine_account(config.account, self.data if self.data.exists() else beside)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the broker, and return once it answers."""
        make_private(self.layout.sockets, owner=self.account.uid)
        make_private(self.data, owner=self.account.uid)
        process.clear(self.data, "valkey")
        self.layout.broker_socket.unlink(missing_ok=True)
        child = process.start(self._command(), self.account, self.log, signal.SIGTERM)
        process.wait_ready(BROKER, child, self._ready, self.log, self.config.deadline)
        return child

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """Stop the broker: request a shutdown, then kill it if it is still running."""
        process.stop(child, [(signal.SIGTERM, 5.0)])

    def _command(self) -> list[str | Path]:
        options = OPTIONS | {"dir": str(self.data), "unixsocket": str(self.layout.broker_socket)}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return [broker_program(self.account, self.layout.programs), *arguments]

    def _ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(os.fspath(self.layout.broker_socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
            except OSError:
                return False
