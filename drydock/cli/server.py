"""`drydock --server`: which server elsewhere is asked, and the client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.http import HttpClient
    from drydock_client.protocol import Client
import os

SERVER, CA, INSECURE = "DRYDOCK_SERVER", "DRYDOCK_CA", "DRYDOCK_INSECURE"


def address() -> str:
    """Return the server to ask; empty for the engine of this machine."""
    return os.environ.get(SERVER, "").strip()


def choose(address: str, ca: str, insecure: bool) -> None:
    """Keep what the options before the command say, for this process."""
    for name, value in ((SERVER, address), (CA, ca), (INSECURE, "1" if insecure else "")):
        if value:
            os.environ[name] = value


def client(address: str, owner: str | None = None) -> HttpClient:
    """Return a client of a server, with the token stored for it. Raises NotAllowed, ServerUnreachable."""
    from drydock_client import keeping
    from drydock_client.http import HttpClient

    return HttpClient(address, keeping.token(address), owner=owner)


def connect(address: str, owner: str | None = None) -> Client:
    """Return the same client as commands see it."""
    return client(address, owner)


def here_only() -> None:
    """Raise InvalidRequest when a server was named for a command about this machine."""
    if address():
        raise InvalidRequest(
            "This command is about the installation on this machine.", field="server",
            hint=f"Leave --server (or {SERVER}) away, or run it there.",
        )  # fmt: skip
