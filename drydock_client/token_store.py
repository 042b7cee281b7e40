"""The file that stores a user's tokens for servers, readable only by that user."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from drydock_client.errors import NotAllowed
from drydock_client.http.addresses import checked


def place() -> Path:
    """Return the path of the token file: the value of DRYDOCK_TOKENS, or the default path."""
    if given := os.environ.get("DRYDOCK_TOKENS"):
        return Path(given).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "drydock" / "tokens.json"


def token(server: str) -> str:
    """Return the token for a server: DRYDOCK_TOKEN, or the stored token.

    Raises NotAllowed if no token is stored, or if other users can read the file of tokens.
    """
    if given := os.environ.get("DRYDOCK_TOKEN", "").strip():
        return given
    found = _read().get(checked(server))
    if not found:
        raise NotAllowed(
            f"No token is stored for {server}.", hint=f"Run drydock --server {server} login, or set DRYDOCK_TOKEN."
        )
    return found


def keep(server: str, secret: str) -> Path:
    """Store the token for a server, and return the path of the file of tokens."""
    found = _read()
    found[checked(server)] = secret
    return _write(found)


def forget(server: str) -> bool:
    """Delete the stored token for a server. Return whether a token was stored."""
    found = _read()
    gone = found.pop(checked(server), None)
    if gone is not None:
        _write(found)
    return gone is not None


def _read() -> dict[str, str]:
    file = place()
    try:
        with file.open() as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise NotAllowed(f"{file} was not used, because other users can read it.", hint=f"chmod 600 {file}")
            found = json.load(opened)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise NotAllowed(f"{file} cannot be read as JSON.", hint="Remove the file, and log in again.") from None
    return {str(server): str(kept) for server, kept in found.items()} if isinstance(found, dict) else {}


def _write(found: dict[str, str]) -> Path:
    """Write the file atomically, never readable by others."""
    file = place()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=".tokens-", dir=file.parent)
    with os.fdopen(descriptor, "w") as opened:
        json.dump(found, opened, indent=1)
    os.replace(beside, file)
    return file
