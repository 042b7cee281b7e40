"""The keeper: parent of the private engines for as long as any process uses them.

Run as `python -m drydock.engines.keeper CONFIG`. It listens on a socket. A user sends the name of an engine on one
line, gets one line of JSON once the engine is ready, and stays connected. After the last connection has closed, the
keeper stops the engines and exits. It restarts an engine that dies while it has users.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

from drydock.engines.cluster import Cluster
from drydock.engines.errors import EngineError
from drydock.engines.layout import BROKER, POSTGRESQL, Config, Layout, prepare
from drydock.engines.process import open_log
from drydock.engines.valkey import Broker

logger = logging.getLogger("drydock.keeper")
PATIENCE_FOR_THE_FIRST = 30.0
RESTARTS, RESTART_WINDOW = 5, 60.0


class Engine(Protocol):
    """The methods of an engine that the keeper calls."""

    def start(self) -> subprocess.Popen[bytes]:
        """Start the engine and wait until it is ready. Raises EngineError."""

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """Stop the engine within a limited time."""


class Keeper:
    """The engines, their users, and the main loop."""

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self.config = config
        self.listener = listener
        self.engines: dict[str, Engine] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths: list[float] = []
        self.selector = selectors.DefaultSelector()
        self.users: set[socket.socket] = set()
        self.ending = False
        self.alone_since = time.monotonic() + PATIENCE_FOR_THE_FIRST

    def serve(self) -> None:
        """Serve until the last user has gone."""
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(_signals(self._end), selectors.EVENT_READ)
        while not self._finished():
            for key, _ in self.selector.select(self._patience()):
                self._turn(key.fileobj)
            self._mend()

    def close(self) -> None:
        """Stop accepting users, then stop the engines."""
        self.config.layout.keeper_socket.unlink(missing_ok=True)
        self.listener.close()
        for user in self.users:
            user.close()
        for name, child in reversed(self.children.items()):
            self.engines[name].stop(child)
            logger.info("%s stopped", name)

    def _finished(self) -> bool:
        return self.ending or (not self.users and time.monotonic() - self.alone_since >= self.config.linger)

    def _patience(self) -> float | None:
        return None if self.users else max(0.0, self.alone_since + self.config.linger - time.monotonic())

    def _end(self) -> None:
        self.ending = True

    def _turn(self, ready: object) -> None:
        if ready is self.listener:
            user, _ = self.listener.accept()
            user.settimeout(5)
            self.users.add(user)
            self.selector.register(user, selectors.EVENT_READ)
        elif isinstance(ready, socket.socket) and ready in self.users:
            self._hear(ready)
        elif isinstance(ready, socket.socket):
            ready.recv(4096)

    def _hear(self, user: socket.socket) -> None:
        try:
            name = user.recv(64).decode(errors="replace").strip()
            if name:
                user.sendall(json.dumps(self._want(name)).encode() + b"\n")
                return
        except OSError:
            logger.info("a user disconnected")
        self.selector.unregister(user)
        self.users.discard(user)
        user.close()
        self.alone_since = time.monotonic()

    def _want(self, name: str) -> dict[str, str]:
        if name in self.children and self.children[name].poll() is None:
            return {"ready": name}
        try:
            self._start(name)
        except Exception as error:
            logger.exception("%s cannot be started", name)
            return {"error": f"{name} cannot be started. {error}"}
        return {"ready": name}

    def _start(self, name: str) -> None:
        began = time.monotonic()
        kinds: dict[str, Callable[[Config], Engine]] = {POSTGRESQL: Cluster, BROKER: Broker}
        self.children.pop(name, None)
        self.engines[name] = kinds[name](self.config)
        self.children[name] = self.engines[name].start()
        logger.info("%s ready after %.2f s as process %d", name, time.monotonic() - began, self.children[name].pid)

    def _mend(self) -> None:
        for name, child in list(self.children.items()):
            if child.poll() is None or self.ending:
                continue
            logger.warning("%s ended with status %s", name, child.returncode)
            del self.children[name]
            now = time.monotonic()
            self.deaths = [*(at for at in self.deaths if now - at < RESTART_WINDOW), now]
            if self.users and len(self.deaths) <= RESTARTS:
                self._want(name)


def _signals(end: object) -> socket.socket:
    """Return a socket that becomes readable when a child dies or a signal asks the keeper to end."""
    heard, wake = socket.socketpair()
    for side in (heard, wake):
        side.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    _kept.append(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())  # type: ignore[operator]
    return heard


_kept: list[socket.socket] = []


def hold_lock(layout: Layout, deadline: float) -> int:
    """Become the only keeper of this state folder, waiting for an earlier one to finish stopping."""
    descriptor = os.open(layout.engines / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + deadline
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        if time.monotonic() > until:
            raise EngineError(f"Another keeper has locked {layout.engines} for {deadline:g} s.")
        time.sleep(0.02)


def listen(layout: Layout) -> socket.socket:
    """Return the socket to which users connect, replacing one that a dead keeper left."""
    layout.keeper_socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(layout.keeper_socket))
    finally:
        os.umask(before)
    listener.listen(128)
    return listener


def _answer(said: dict[str, str]) -> None:
    """Write a result to the process that started this one, unless that process has been killed in the meantime."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{json.dumps(said)}\n".encode())


def main() -> None:
    """Start the keeper, report that on standard output, detach from it, and serve."""
    config = Config.from_json(sys.argv[1])
    try:
        prepare(config)
        # Held until this process has ended, so that nobody takes it for gone before.
        hold_lock(config.layout, config.deadline)
        keeper = Keeper(config, listen(config.layout))
    except (EngineError, OSError) as error:
        _answer({"error": str(error)})
        sys.exit(1)
    log = config.layout.log("keeper")
    with open_log(log) as output:
        _answer({"ready": "keeper"})
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        keeper.serve()
    finally:
        keeper.close()


if __name__ == "__main__":
    main()
