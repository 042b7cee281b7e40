"""The paths of the private engines, and the configuration that the keeper needs."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from drydock.engines.errors import EngineError

LONGEST_SOCKET = 107
POSTGRESQL = "postgresql"
BROKER = "broker"
ENGINES = (POSTGRESQL, BROKER)
USER = DATABASE = "drydock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The keeper's configuration, which it is given as JSON."""

    state: Path
    account: int = 0
    linger: float = 1.0
    deadline: float = 120.0
    durable: bool = True

    def to_json(self) -> str:
        """Return the configuration as text for `from_json`."""
        return json.dumps({**dataclasses.asdict(self), "state": str(self.state)})

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Return the configuration that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "state": Path(values["state"])})

    @property
    def layout(self) -> Layout:
        """The paths below this state folder."""
        return Layout(self.state)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Every path of the private engines, derived from the state folder alone."""

    state: Path

    @property
    def engines(self) -> Path:
        """Folder of the engines' data and locks."""
        return self.state / "engines"

    @property
    def logs(self) -> Path:
        """Folder of the logs of the keeper and the engines."""
        return self.state / "logs"

    @property
    def programs(self) -> Path:
        """Folder of copies of binaries that the engines' account cannot reach where they are installed."""
        return self.state / "programs"

    @property
    def run(self) -> Path:
        """Folder of the sockets: in the state folder, or under /tmp if that path is too long for a socket."""
        usual = self.state / "run"
        if len(os.fsencode(usual / "e" / ".s.PGSQL.5432")) <= LONGEST_SOCKET:
            return usual
        name = hashlib.sha256(os.fsencode(self.state)).hexdigest()[:16]
        return Path(f"/tmp/drydock-{os.geteuid()}-{name}")  # noqa: S108  (checked by make_private)

    @property
    def sockets(self) -> Path:
        """Folder of the engines' sockets, which is PostgreSQL's host."""
        return self.run / "e"

    @property
    def keeper_socket(self) -> Path:
        """The socket on which the keeper accepts its users."""
        return self.run / "keeper"

    @property
    def broker_socket(self) -> Path:
        """The broker's socket."""
        return self.sockets / "broker"

    @property
    def broker_url(self) -> str:
        """The broker's URL, in the form that Celery takes."""
        return f"redis+socket://{self.broker_socket}"

    def data(self, engine: str) -> Path:
        """Return the data folder of an engine."""
        return self.engines / engine

    def log(self, name: str) -> Path:
        """Return the log file of the keeper or an engine."""
        return self.logs / f"{name}.log"


def make_state(state: Path) -> None:
    """Create the state folder. If run as root, other users can traverse the folder but not list it."""
    with _explained(state):
        state.parent.mkdir(parents=True, exist_ok=True)
        make_private(state, 0o711 if os.geteuid() == 0 else 0o700)


@contextlib.contextmanager
def _explained(state: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"The state folder {state} cannot be used: {error.filename}: {error.strerror}.",
            hint="Set DRYDOCK_STATE to a folder you may write, or DATABASE_URL and BROKER_URL to servers of your own.",
        ) from error


def make_private(path: Path, mode: int = 0o700, owner: int | None = None) -> None:
    """Create a folder with exactly this mode and owner. Refuses a folder that another user may have made."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        _check_ours(path, owner)
    else:
        path.chmod(mode)
    if owner is not None and path.stat().st_uid != owner:
        os.chown(path, owner, owner)


def _check_ours(path: Path, owner: int | None) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) and not path.is_dir():
        raise EngineError(f"{path} exists but is not a folder.", hint="Move or remove it.")
    if found.st_uid not in {os.geteuid(), owner}:
        raise EngineError(
            f"{path} belongs to user id {found.st_uid}, not to you.",
            hint="Set DRYDOCK_STATE to a folder of your own.",
        )


def prepare(config: Config) -> None:
    """Create the folders that every engine needs."""
    layout = config.layout
    make_state(layout.state)
    with _explained(layout.state):
        for folder in (layout.engines, layout.run):
            make_private(folder, 0o711 if os.geteuid() == 0 else 0o700)
        make_private(layout.logs)
