"""`drydock login` and `drydock logout`: the token for a server elsewhere."""

from __future__ import annotations

import sys

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.cli.server import address
from drydock.core.errors import InvalidRequest


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("login", rich_help_panel="Installation")(login)
    app.command("logout", rich_help_panel="Installation")(logout)


def _named() -> str:
    if not address():
        raise InvalidRequest("Which server?", field="server", hint="drydock --server https://HOST login")
    return address()


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
