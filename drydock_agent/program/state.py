"""What the agent remembers between two starts: its server, its token, and the number of its last report."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from drydock_agent import wire
from drydock_agent.program.errors import AgentError

VERSION = 1
_FILE, _LOCK, _MOST = "agent.json", "lock", 65_536


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The agent's membership of one blueprint. The token is a secret."""

    server: str
    ca: str = ""
    agent: str
    blueprint: str
    place: str
    name: str
    token: str
    expires_at: str
    interval: float
    sequence: int = 0
    """The number of the last report."""
    version: int = VERSION


class StateFolder:
    """The folder with the state. Only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / _FILE

    def load(self) -> State | None:
        """Return the state, or None if this agent never joined. Raises AgentError."""
        try:
            handle = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AgentError(f"{self._file} cannot be read: {error.strerror}.") from None
        with os.fdopen(handle, "rb") as opened:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise AgentError(f"{self._file} has the agent's token. Only its owner may read it: chmod 600.")
            content = opened.read(_MOST)
        try:
            return wire.decoded(State, wire.parsed(content), version=VERSION)
        except wire.Malformed as error:
            raise AgentError(f"{self._file} is damaged ({error}). Join again with a new code.") from None

    def save(self, state: State) -> None:
        """Replace the state. Afterwards it is on the disk. Raises AgentError."""
        new = self._file.with_suffix(".new")
        content = json.dumps(wire.encoded(state)).encode()
        try:
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(handle)
            new.replace(self._file)
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise AgentError(f"{self._file} cannot be written: {error.strerror}.") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and hold it against a second agent. Raises AgentError if one is running."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise AgentError(f"{self.path} cannot be used: {error.strerror}. Choose a folder: --state.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise AgentError(f"Another agent is running in {self.path}.") from None
            raise AgentError(f"{self.path} cannot be locked: {error.strerror}.") from None
        try:
            yield
        finally:
            os.close(handle)
