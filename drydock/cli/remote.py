"""`drydock --server`: the same commands on a server elsewhere; `drydock login` and `drydock logout`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.http import HttpClient
    from drydock_client.protocol import Client

SERVER, CA, INSECURE = "DRYDOCK_SERVER", "DRYDOCK_CA", "DRYDOCK_INSECURE"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("login", rich_help_panel="Installation")(login)
    app.command("logout", rich_help_panel="Installation")(logout)


def server() -> str:
    """The server that is to be asked; empty for the engine of this machine."""
    return os.environ.get(SERVER, "").strip()


def chosen(address: str, ca: str, insecure: bool) -> None:
    """What the options before the command say, for this process."""
    for name, value in ((SERVER, address), (CA, ca), (INSECURE, "1" if insecure else "")):
        if value:
            os.environ[name] = value


def connected(address: str, owner: str | None = None) -> HttpClient:
    """A client of a server, with the token that is kept for it. Raises NotAllowed, ServerUnreachable."""
    from drydock_client import keeping
    from drydock_client.http import HttpClient

    return HttpClient(address, keeping.token(address), owner=owner)


def connect(address: str, owner: str | None = None) -> Client:
    """The same, as commands see it."""
    return connected(address, owner)


def here_only() -> None:
    """Raises InvalidRequest where a server was named for what is about this machine."""
    if server():
        raise InvalidRequest(
            "This command is about the installation on this machine.", field="server",
            hint=f"Leave --server (or {SERVER}) away, or run it there.",
        )  # fmt: skip


def _named() -> str:
    if not server():
        raise InvalidRequest("Which server?", field="server", hint="drydock --server https://HOST login")
    return server()


@guarded
def login(*, as_json: o.AsJson = False) -> None:
    """Keep a token for a server: asked for, or read from standard input. `drydock tokens create` makes one there."""
    from drydock_client import keeping
    from drydock_client.http import HttpClient

    address = _named()
    asked = sys.stdin.isatty()
    secret = typer.prompt("Token", hide_input=True, err=True) if asked else sys.stdin.readline()
    client = HttpClient(address, secret.strip())
    file = keeping.keep(address, secret.strip())
    if as_json:
        return output.emit({"server": address, "name": client.name, "operator": client.operator, "file": str(file)})
    output.say(f"You are {client.name} at {address}. The token is kept in {file}.")
    return None


@guarded
def logout(*, as_json: o.AsJson = False) -> None:
    """Forget the token of a server. It stays valid until it expires: `drydock tokens revoke` ends it there."""
    from drydock_client import keeping

    address = _named()
    gone = keeping.forget(address)
    if as_json:
        return output.emit({"server": address, "forgotten": gone})
    output.say(f"Forgotten: {address}" if gone else f"There was no token for {address}.")
    return None
