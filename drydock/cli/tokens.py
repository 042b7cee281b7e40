"""`drydock tokens`: what programs show to the REST API instead of a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from drydock.cli import options as o
from drydock.cli import output, server
from drydock.cli.exits import guarded

if TYPE_CHECKING:
    from drydock_client.values import TokenInfo

Scope = Annotated[str, typer.Option("--scope", help="`read`, `lease`, or `operate` for operators.")]
Life = Annotated[
    str | None, typer.Option("--ttl", metavar="SPAN", help="How long it is valid; 90 days when nothing is said.")
]
User = Annotated[str | None, typer.Option("--user", help="Operators: of this user.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Tokens for the REST API: create, list, revoke.", no_args_is_help=True)
    for name, command in (("create", create), ("list", list_), ("revoke", revoke)):
        group.command(name)(command)
    app.add_typer(group, name="tokens", rich_help_panel="Installation")


class _Tokens(Protocol):
    """Tokens, here or on a server."""

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]: ...

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]: ...

    def revoke_token(self, id: int) -> TokenInfo: ...


class _Here:
    """Tokens of this machine's installation."""

    def __init__(self) -> None:
        from drydock.cli.session import connect_here

        self._who = connect_here().who

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]:
        from leases.rest import tokens

        return tokens.create(self._who, name=name, scope=scope, ttl=ttl, owner=user)

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]:
        from leases.rest import tokens

        return tokens.list_(self._who, owner=user)

    def revoke_token(self, id: int) -> TokenInfo:
        from leases.rest import tokens

        return tokens.revoke(self._who, id)


def _tokens() -> _Tokens:
    return server.client(server.address()) if server.address() else _Here()


@guarded
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")], *,
    scope: Scope = "lease", ttl: Life = None, user: User = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Make a token and print it; it is shown only now."""
    made, secret = _tokens().create_token(name, scope=scope, ttl=ttl, user=user)
    from drydock_client.values import to_json

    if as_json:
        return output.emit({**to_json(made), "token": secret})
    output.line(secret)
    output.say(f"token {made.id} of {made.user}, scope {made.scope}, until {output.text(made.expires_at)}")
    output.say("it is shown only now: `drydock --server URL login` keeps it, or DRYDOCK_TOKEN holds it")
    return None


@guarded
def list_(*, user: User = None, as_json: o.AsJson = False) -> None:
    """List tokens, newest first; operators see everybody's."""
    found = _tokens().tokens(user=user)
    if as_json:
        return output.emit(found)
    rows = [
        (t.id, t.user, t.name, t.scope, f"...{t.tail}", _state(t), t.expires_at, output.ago(t.last_used_at))
        for t in found
    ]
    headers = ("id", "user", "name", "scope", "last 4", "state", "until", "used")
    return output.table(headers, rows, empty="No tokens.")


def _state(token: TokenInfo) -> str:
    return "revoked" if token.revoked_at else "expired" if token.expired else "valid"


@guarded
def revoke(
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="The token's number.")], *, as_json: o.AsJson = False
) -> None:
    """Make a token worthless, now and for good, and those that were made with it."""
    gone = _tokens().revoke_token(token)
    output.emit(gone) if as_json else output.line(f"token {gone.id} of {gone.user} is revoked")
