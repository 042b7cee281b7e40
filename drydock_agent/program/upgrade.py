"""Upgrades that the server orders: a new version takes over only after it has said hello.

The new file lies beside the running one until then, so an agent that is killed at any moment starts with a version that
works. After the exchange, a version that ends three times before it says hello is replaced by the one before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from drydock_agent import wire
from drydock_agent.messages import Order, OrderResult, OrderStatus
from drydock_agent.package import running_from, version
from drydock_agent.program.connection import PROGRAM, Connection
from drydock_agent.program.errors import AgentError
from drydock_agent.program.state import StateFolder, create, sync

SECONDS = 90.0
"""Time in seconds for a new version to say hello."""
_CHECK_SECONDS = 60.0
_STARTS = 3
_FILE, _MOST = "upgrade.json", 4096
_SAID = 500


class Restart(Exception):
    """The agent has to start again, with the file that lies in place now."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Record:
    """An upgrade that is not finished. `phase` is `trial`, `swapped` or `back`."""

    order: str
    phase: str
    old: str
    new: str
    starts: int = 0
    version: int = 1


class Upgrades:
    """The upgrades of this program. `seconds` is the time that a new version has for its hello."""

    def __init__(
        self, folder: StateFolder, connection: Connection, *, seconds: float = SECONDS, root: tuple[str, ...] = ()
    ) -> None:
        self._folder, self._connection, self._seconds, self._root = folder, connection, seconds, root
        self._program = running_from()
        self._record = folder.path / _FILE

    def begin(self) -> tuple[str, OrderResult] | None:
        """Return the order that was interrupted by the start of this program, and its result; None if there is none.

        Raises Restart if this version has ended too often before it said hello. The one before is then in place.
        """
        found = self._load()
        if found is None:
            return None
        if found.phase == "trial":
            self._forget()
            return found.order, _failed(f"The agent was stopped before version {found.new} had said hello.")
        if found.phase == "back":
            self._forget()
            said = f"Version {found.new} ended {_STARTS} times before it said hello. Version {found.old} is back."
            return found.order, _failed(said)
        if found.starts >= _STARTS and self._program is not None and self._previous.exists():
            self._save(dataclasses.replace(found, phase="back"))
            self._previous.replace(self._program)
            raise Restart
        self._save(dataclasses.replace(found, starts=found.starts + 1))
        message = f"Version {found.old} was replaced by {version()}."
        return found.order, OrderResult(status=OrderStatus.DONE, message=message)

    def confirm(self) -> None:
        """Record that this version has said hello."""
        self._forget()

    def carry_out(self, order: Order, token: str) -> None:
        """Replace this program by the one in an order. Raises Restart when that is done, and AgentError if it failed.

        Nothing has changed if it failed, except that the new version may have renewed the token.
        """
        program = self._writable()
        wanted = str(order.arguments["version"])
        new = program.with_name(program.name + ".new")
        self._save(_Record(order=order.id, phase="trial", old=version(), new=wanted))
        try:
            self._fetch(order, token, new)
            said = _run([new, "check"], _CHECK_SECONDS, f"The self-check of version {wanted}")
            # Warnings about drivers of other packages come before the version.
            found = (said.strip().splitlines() or [""])[-1]
            if found != wanted:
                raise AgentError(f"The file has version {found[:40]!r}, and not {wanted} as ordered.")
            trial = [new, "hello", "--state", self._folder.path.absolute(), *self._root]
            _run(trial, self._seconds, f"Version {wanted}", lock=self._folder.lock)
            self._save(_Record(order=order.id, phase="swapped", old=version(), new=wanted))
            self._exchange(program, new)
        except AgentError:
            new.unlink(missing_ok=True)
            self._forget()
            raise
        except OSError as error:
            new.unlink(missing_ok=True)
            self._forget()
            raise AgentError(f"{program} cannot be replaced: {error.strerror}.") from None
        raise Restart

    def restart(self) -> None:
        """Start the program in place of this process, with the same arguments. Does not return."""
        assert self._program is not None
        # Nothing is imported from here on: the file of this version is no longer in its place.
        os.execv(sys.executable, [sys.executable, "-I", str(self._program), *sys.argv[1:]])  # noqa: S606

    @property
    def _previous(self) -> Path:
        assert self._program is not None
        return self._program.with_name(self._program.name + ".previous")

    def _writable(self) -> Path:
        if self._program is None:
            raise AgentError(
                "This agent is not installed as one file, so the server cannot upgrade it. Install the new version in"
                " the same way as this one, for example with pip, and restart it."
            )
        folder = self._program.parent
        if self._program.is_symlink() or not os.access(folder, os.W_OK):
            raise AgentError(f"{folder} is not writable for this agent. Install the new version by hand.")
        return self._program

    def _fetch(self, order: Order, token: str, new: Path) -> None:
        path, wanted = str(order.arguments["path"]), str(order.arguments["sha256"])
        if path != PROGRAM:
            raise AgentError(f"The order names the path {path!r:.60}. An upgrade is only fetched from {PROGRAM}.")
        content = self._connection.program(token)
        found = hashlib.sha256(content).hexdigest()
        if found != wanted:
            raise AgentError(f"The SHA-256 of the file is {found}, and not {wanted} as ordered. Nothing was replaced.")
        new.unlink(missing_ok=True)
        create(new, content, mode=0o700)

    def _exchange(self, program: Path, new: Path) -> None:
        """Put the new file in place in one step, and keep the one before."""
        kept = program.with_name(program.name + ".old")
        kept.unlink(missing_ok=True)
        os.link(program, kept)
        kept.replace(self._previous)
        new.replace(program)
        sync(program.parent)

    def _load(self) -> _Record | None:
        """Return the record of an unfinished upgrade, or None. A record that cannot be read is deleted."""
        try:
            with self._record.open("rb") as opened:
                return wire.decoded(_Record, wire.parsed(opened.read(_MOST)), version=1)
        except FileNotFoundError:
            return None
        except (OSError, wire.Malformed):
            self._forget()
            return None

    def _save(self, record: _Record) -> None:
        self._folder.write(_FILE, json.dumps(wire.encoded(record)).encode())

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._record.unlink(missing_ok=True)


def check() -> str:
    """Return the version of this program, after its drivers were loaded. Raises NotInstalled."""
    from drydock_agent import MemoryTree, load_drivers, scan

    scan(MemoryTree({}), drivers=load_drivers())
    return version()


def _failed(message: str) -> OrderResult:
    return OrderResult(status=OrderStatus.FAILED, message=" ".join(message.split())[:1000])


def _run(words: list[object], seconds: float, what: str, *, lock: int | None = None) -> str:
    """Run a command of a new version, and return its output. Its processes are killed in the end. Raises AgentError."""
    command = [sys.executable, "-I", *map(str, words)]
    environment = {key: value for key, value in os.environ.items() if key != StateFolder.LOCK}
    if lock is not None:
        environment[StateFolder.LOCK] = str(lock)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=environment, start_new_session=True, pass_fds=() if lock is None else (lock,),
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AgentError(f"{what} did not end within {seconds:g} seconds, and was stopped.") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if process.returncode:
        last = " ".join((said.strip().splitlines() or [""])[-1].split())[:_SAID]
        raise AgentError(f"{what} failed with exit code {process.returncode}: {last or 'it said nothing.'}")
    return said
