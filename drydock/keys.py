"""The three keys and the token for `/metrics`, read from the environment or generated once into the state folder.

None of them is ever in the database. `python -m drydock.keys` prints new ones, as lines for the environment.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from drydock.core.logging import hide_always
from drydock.environment import Environment


def secret_key(environment: Environment) -> str:
    """Return Django's secret key."""
    return environment.secret_key.get_secret_value() or _kept(environment, "secret_key", _random)


def encryption_keys(environment: Environment) -> list[str]:
    """Return the Fernet keys. The first one encrypts."""
    given = [key.get_secret_value() for key in environment.encryption_keys]
    if not given and _derives(environment, "encryption_keys"):
        return [base64.urlsafe_b64encode(_derived(environment, "encryption key")).decode()]
    return given or _kept(environment, "encryption_keys", _fernet).replace("\n", ",").split(",")


def ownership_key(environment: Environment) -> str:
    """Return the key of the HMAC that marks provider objects as belonging to this installation."""
    given = environment.ownership_key.get_secret_value()
    if not given and _derives(environment, "ownership_key"):
        return _derived(environment, "ownership key").hex()
    return given or _kept(environment, "ownership_key", _random)


def metrics_token(environment: Environment) -> str:
    """Return the token that grants access to `/metrics`, generating one for this machine if none is set."""
    return environment.metrics_token.get_secret_value() or _kept(environment, "metrics_token", _random)


def _derives(environment: Environment, name: str) -> bool:
    """Return whether a key that is not set is derived from the secret key.

    A key is derived if both DATABASE_URL and the secret key are set, because each machine would otherwise generate a
    different key. A key that was generated before is kept.
    """
    given = bool(environment.database_url and environment.secret_key.get_secret_value())
    return given and not (environment.state / "keys" / name).exists()


def _derived(environment: Environment, what: str) -> bytes:
    """Return 32 bytes derived from the secret key for one purpose."""
    secret = environment.secret_key.get_secret_value().encode()
    return hmac.new(secret, f"drydock {what} 1".encode(), hashlib.sha256).digest()


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
    """Write a file unless it exists. If two processes write at once, the hard link decides whose value stays."""
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
    for name in ("SECRET_KEY", "ENCRYPTION_KEYS", "OWNERSHIP_KEY", "METRICS_TOKEN"):
        print(f"DRYDOCK_{name}={_fernet() if name == 'ENCRYPTION_KEYS' else _random()}")
