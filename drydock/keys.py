"""The three keys. None is ever in the database: from the environment, or generated once into the state folder.

`python -m drydock.keys` prints fresh ones, as lines for the environment.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from drydock.core.logging import hide_always
from drydock.environment import Environment


def secret_key(environment: Environment) -> str:
    """Django's secret key."""
    return environment.secret_key.get_secret_value() or _kept(environment, "secret_key", _random)


def encryption_keys(environment: Environment) -> list[str]:
    """Fernet keys, the encrypting one first."""
    given = [key.get_secret_value() for key in environment.encryption_keys]
    return given or _kept(environment, "encryption_keys", _fernet).replace("\n", ",").split(",")


def ownership_key(environment: Environment) -> str:
    """Key of the HMAC that marks provider objects as ours."""
    return environment.ownership_key.get_secret_value() or _kept(environment, "ownership_key", _random)


def _random() -> str:
    return secrets.token_urlsafe(50)


def _fernet() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def _kept(environment: Environment, name: str, make: Callable[[], str]) -> str:
    path = environment.state / "keys" / name
    if not path.exists():
        _write_once(path, make())
    kept = path.read_text().strip()
    hide_always(kept)
    return kept


def _write_once(path: Path, value: str) -> None:
    """Two processes may come here at once: the link decides whose value stays."""
    from drydock.engines.layout import make_state

    make_state(path.parent.parent)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, value.encode() + b"\n")
        os.fsync(descriptor)
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        os.unlink(fresh)


if __name__ == "__main__":
    for name, make in (("SECRET_KEY", _random), ("ENCRYPTION_KEYS", _fernet), ("OWNERSHIP_KEY", _random)):
        print(f"DRYDOCK_{name}={make()}")
