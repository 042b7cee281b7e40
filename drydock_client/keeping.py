"""Where the tokens of a person's servers are kept: one file, readable by that person alone."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from drydock_client.errors import NotAllowed
from drydock_client.http.addresses import checked


def place() -> Path:
    """The file; DRYDOCK_TOKENS says otherwise."""
    if given := os.environ.get("DRYDOCK_TOKENS"):
        return Path(given).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "drydock" / "tokens.json"


def token(server: str) -> str:
    """The token for a server: DRYDOCK_TOKEN, or the one that is kept. Raises NotAllowed when there is none, or when
    others can read the file."""
    if given := os.environ.get("DRYDOCK_TOKEN", "").strip():
        return given
    found = _read().get(checked(server))
    if not found:
        raise NotAllowed(f"There is no token for {server}.", hint=f"drydock --server {server} login, or DRYDOCK_TOKEN.")
    return found


def keep(server: str, secret: str) -> Path:
    """Keep a token; the file it is in."""
    found = _read()
    found[checked(server)] = secret
    return _write(found)


def forget(server: str) -> bool:
    """Forget the token of a server; whether there was one."""
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
                raise NotAllowed(f"Others may read {file}, so it is not used.", hint=f"chmod 600 {file}")
            found = json.load(opened)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise NotAllowed(f"{file} cannot be read as JSON.", hint="Remove it, and log in again.") from None
    return {str(server): str(kept) for server, kept in found.items()} if isinstance(found, dict) else {}


def _write(found: dict[str, str]) -> Path:
    """In one step, and never readable by others, not even for a moment."""
    file = place()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=".tokens-", dir=file.parent)
    with os.fdopen(descriptor, "w") as opened:
        json.dump(found, opened, indent=1)
    os.replace(beside, file)
    return file
