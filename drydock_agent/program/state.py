"""What the agent remembers between two starts: its server, its token, and the number of its last report."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

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
    secret: str = ""
    """The secret with which the server authenticates at this agent's endpoint; empty if it does not listen."""
    version: int = VERSION


_FIELDS = frozenset(one.name for one in dataclasses.fields(State))


class StateFolder:
    """The folder with the state. Only its owner can read it."""

    LOCK: ClassVar[str] = "DRYDOCK_AGENT_LOCK"
    """The environment variable in which an agent hands its lock to a new version that it tries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock: int | None = None
        """The file descriptor of the lock, while it is held."""
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
            # A newer version that was tried, and did not stay, may have written fields that this one does not know.
            known = {name: one for name, one in _mapping(wire.parsed(content)).items() if name in _FIELDS}
            return wire.decoded(State, known, version=VERSION)
        except wire.Malformed as error:
            raise AgentError(f"{self._file} is damaged ({error}). Join again with a new code.") from None

    def save(self, state: State) -> None:
        """Replace the state. Afterwards it is on the disk. Raises AgentError."""
        self.write(_FILE, json.dumps(wire.encoded(state)).encode())

    def write(self, name: str, content: bytes) -> None:
        """Replace a file of the folder, which only its owner can read, and force it to the disk. Raises AgentError."""
        file = self.path / name
        new = file.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            create(new, content)
            new.replace(file)
            sync(self.path)
        except OSError as error:
            raise AgentError(f"{file} cannot be written: {error.strerror}.") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and hold it against a second agent. Raises AgentError if one is running."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = self._handed()
            handle = (
                handle
                if handle is not None
                else os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            )
        except OSError as error:
            raise AgentError(f"{self.path} cannot be used: {error.strerror}. Choose a folder: --state.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise AgentError(f"Another agent is running in {self.path}.") from None
            raise AgentError(f"{self.path} cannot be locked: {error.strerror}.") from None
        self.lock = handle
        try:
            yield
        finally:
            self.lock = None
            os.close(handle)

    def _handed(self) -> int | None:
        """Return the lock that the agent handed to this program, or None."""
        given = os.environ.pop(self.LOCK, "")
        if not given.isdecimal():
            return None
        try:
            # The lock belongs to the open file, so taking it again through the same one succeeds.
            same = os.path.samestat(os.fstat(int(given)), os.stat(self.path / _LOCK))
        except OSError:
            return None
        return int(given) if same else None


def create(file: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Create a file that does not exist yet, and force its content to the disk. Raises OSError."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(handle)


def sync(folder: Path) -> None:
    """Force the names in a folder to the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mapping(document: object) -> Mapping[str, object]:
    if not isinstance(document, Mapping):
        raise wire.Malformed("it is not a JSON object")
    return document
