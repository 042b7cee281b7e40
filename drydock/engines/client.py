"""The client side: make sure that an engine runs, and count as its user until this process ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drydock.engines.errors import EngineError, last_lines
from drydock.engines.layout import Config, Layout, prepare

_guard = threading.RLock()


def _forget_holder() -> None:
    """Replace the lock in a forked process, where the thread that held the lock does not exist."""
    global _guard
    _guard = threading.RLock()


os.register_at_fork(after_in_child=_forget_holder)
_memberships: dict[Path, Membership] = {}


class Membership:
    """A process's open connection to the keeper. The kernel closes it when the process ends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.ready: set[str] = set()

    def alive(self) -> bool:
        """Return whether this process is still connected and the keeper is running."""
        if self.process != os.getpid():
            return False
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def ask(self, engine: str, deadline: float) -> None:
        """Request an engine and wait until it is ready."""
        self.connection.settimeout(deadline)
        self.connection.sendall(engine.encode() + b"\n")
        answer = _line(self.connection)
        if "error" in answer:
            raise EngineError(answer["error"])
        self.ready.add(engine)


def ensure(config: Config, engine: str, *, again: bool = False) -> None:
    """Make sure that an engine runs. `again` asks the keeper even if it was ready before. Raises EngineError."""
    with _guard:
        known = _memberships.get(config.state)
        if known and not again and engine in known.ready and known.alive():
            return
        until = time.monotonic() + config.deadline
        while True:
            try:
                _join(config, until).ask(engine, max(1.0, until - time.monotonic()))
                return
            except TimeoutError as error:
                leave(config.state)
                raise _too_late(config, engine) from error
            except ConnectionError as error:
                # The keeper was stopping, or died; the next one is waited for.
                leave(config.state)
                if time.monotonic() > until:
                    raise _too_late(config, engine) from error
                time.sleep(0.05)


def leave(state: Path) -> None:
    """Stop using the engines of a state folder. The end of the process has the same effect."""
    with _guard:
        known = _memberships.pop(state, None)
        if known and known.process == os.getpid():
            known.connection.close()
        elif known:
            # Inherited: whoever forked us may have closed its number, which may be somebody else's by now.
            known.connection.detach()


def wait_until_stopped(config: Config, deadline: float = 30.0) -> bool:
    """Wait until the keeper has ended. Return whether the engines are down."""
    lock = config.layout.engines / "keeper.lock"
    until = time.monotonic() + deadline
    while lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
        time.sleep(0.02)
    return True


def _join(config: Config, until: float) -> Membership:
    known = _memberships.get(config.state)
    if known and known.alive():
        return known
    if known:
        leave(config.state)
    connection = _connect(config.layout) or _connect_to_new(config, until)
    _memberships[config.state] = Membership(connection)
    return _memberships[config.state]


def _connect(layout: Layout) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(os.fspath(layout.keeper_socket))
    except OSError:
        connection.close()
        return None
    return connection


def _connect_to_new(config: Config, until: float) -> socket.socket:
    """Start a keeper and connect to it. Other processes that try at the same time wait, and then find that keeper."""
    prepare(config)
    with _starting(config.layout, until):
        found = _connect(config.layout)
        if found:
            return found
        _start_keeper(config)
        found = _connect(config.layout)
    if found is None:
        raise ConnectionRefusedError("the keeper ended at once")
    return found


@contextmanager
def _starting(layout: Layout, until: float) -> Iterator[None]:
    path = layout.engines / "start.lock"
    # Whoever can open it can hold the lock, and leases of this machine may pass through the folder.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(0.02)
        yield


def _start_keeper(config: Config) -> None:
    # The keeper finds the modules that its starter finds, wherever they come from.
    modules = [str(Path(__file__).resolve().parents[2]), *(path for path in sys.path if os.path.isabs(path))]
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", "drydock.engines.keeper", config.to_json()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.pathsep.join(modules), "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    if keeper.stdout is None:
        raise EngineError("The keeper has no output.")
    with keeper.stdout as output:
        first = output.readline()
    threading.Thread(target=keeper.wait, daemon=True).start()
    answer = json.loads(first) if first.strip() else {"error": "The keeper of the engines ended while starting."}
    if "error" in answer:
        raise EngineError(answer["error"] + last_lines(config.layout.log("keeper")))


def _line(connection: socket.socket) -> dict[str, str]:
    text = b""
    while not text.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError("the keeper closed the connection")
        text += part
    answer: dict[str, str] = json.loads(text)
    return answer


def _too_late(config: Config, engine: str) -> EngineError:
    return EngineError(
        f"{engine} was not ready within {config.deadline:g} s.{last_lines(config.layout.log(engine))}",
        hint=f"The logs are in {config.layout.logs}; a slow disk may need a larger DRYDOCK_ENGINE_DEADLINE_SECONDS.",
    )
