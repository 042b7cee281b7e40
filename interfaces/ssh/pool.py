"""A pool of SSH connections, shared within a process by all callers that use the same account and key."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable

from drydock.core import clock
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import DeadlineExceeded
from interfaces.ssh.connection import SshConnection

# OpenSSH allows ten sessions on one connection; one is kept free for ending what another one started.
MOST_SESSIONS = 8
IDLE = 60.0
"""Seconds after which an unused connection is closed."""


class Pool:
    """A thread-safe pool of connections. After a fork, the child has an empty pool, and the parent keeps its own."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._start_empty()

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[str, list[SshConnection]] = {}
        self._connecting: dict[str, threading.Lock] = {}
        self._sweeper: threading.Thread | None = None

    def borrow(
        self,
        endpoint: SshEndpoint,
        private_key: str,
        bastion_key: str,
        deadline: Deadline,
        *,
        fresh: bool = False,
    ) -> SshConnection:
        """Return a connection with room for another session, or a new one if `fresh`. Release it with `give_back`."""
        name = _name(endpoint, private_key)
        if not fresh and (found := self._with_room(name)):
            return found
        with self._lock:
            one_at_a_time = self._connecting.setdefault(name, threading.Lock())
        if not one_at_a_time.acquire(timeout=max(0.0, deadline.remaining)):
            raise DeadlineExceeded(f"Timed out waiting for a connection to {endpoint.host}.")
        try:
            if not fresh and (found := self._with_room(name)):
                return found
            return self._opened(name, endpoint, private_key, bastion_key, deadline)
        finally:
            one_at_a_time.release()

    def _opened(
        self, name: str, endpoint: SshEndpoint, private_key: str, bastion_key: str, deadline: Deadline
    ) -> SshConnection:
        bastion = None
        if endpoint.bastion is not None:
            bastion = self.borrow(endpoint.bastion, bastion_key, bastion_key, deadline)
        try:
            opened = SshConnection(endpoint, private_key, deadline=deadline, bastion=bastion)
        except BaseException:
            if bastion is not None:
                self.give_back(bastion)
            raise
        opened.sessions = 1
        with self._lock:
            self._connections.setdefault(name, []).append(opened)
            self._have_sweeper()
        return opened

    def give_back(self, connection: SshConnection) -> None:
        """Release one session on a connection."""
        with self._lock:
            connection.sessions -= 1
            connection.idle_since = clock.monotonic()

    def close_idle(self, older_than: float | None = None) -> None:
        """Close connections that are dead or have been unused for `older_than` seconds (None: the pool's limit)."""
        bound = self._idle if older_than is None else older_than
        now = clock.monotonic()

        def old(each: SshConnection) -> bool:
            return not each.sessions and now - each.idle_since >= bound

        for connection in self._take(lambda each: not each.alive or old(each)):
            connection.close()
            if connection.bastion is not None:
                self.give_back(connection.bastion)

    def close_to(self, endpoint: SshEndpoint) -> None:
        """Close the connections to an endpoint that are not in use."""
        for connection in self._take(lambda each: each.endpoint == endpoint and not each.sessions):
            connection.close()
            if connection.bastion is not None:
                self.give_back(connection.bastion)

    def _with_room(self, name: str) -> SshConnection | None:
        with self._lock:
            for connection in self._connections.get(name, ()):
                if connection.alive and connection.sessions < MOST_SESSIONS:
                    connection.sessions += 1
                    return connection
        return None

    def _take(self, chosen: Callable[[SshConnection], bool]) -> list[SshConnection]:
        with self._lock:
            taken = [each for some in self._connections.values() for each in some if chosen(each)]
            for name, some in list(self._connections.items()):
                left = [each for each in some if each not in taken]
                if left:
                    self._connections[name] = left
                else:
                    del self._connections[name]
        return taken

    def _have_sweeper(self) -> None:
        if self._sweeper is None or not self._sweeper.is_alive():
            self._sweeper = threading.Thread(target=self._sweep, name="drydock-ssh-pool", daemon=True)
            self._sweeper.start()

    def _sweep(self) -> None:
        while True:
            clock.sleep(min(15.0, self._idle))
            self.close_idle()
            with self._lock:
                if not self._connections:
                    self._sweeper = None
                    return

    def forget(self) -> None:
        """Drop all connections in the child after a fork, without closing those that the parent uses."""
        inherited = [each for some in self._connections.values() for each in some]
        # Kept for ever: their finalizers would speak on the parent's connections.
        _OF_THE_PARENT.extend(inherited)
        for connection in inherited:
            connection.forget()
        self._start_empty()


def _name(endpoint: SshEndpoint, private_key: str) -> str:
    where = json.dumps(endpoint.to_json(), sort_keys=True)
    return hashlib.sha256(f"{where}\n{private_key}".encode()).hexdigest()


_OF_THE_PARENT: list[SshConnection] = []
POOL = Pool()
os.register_at_fork(after_in_child=POOL.forget)
