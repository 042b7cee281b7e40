"""`drydock authorizations`: who may use which blueprint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from leases.client import AuthorizationInfo

What = Annotated[
    str,
    typer.Argument(metavar="ID|BLUEPRINT", help="An authorization's number; or a blueprint, with --user or --group."),
]
Message = Annotated[str, typer.Option("--message", "-m", help="Why; kept with it.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "Who may use which blueprint: list, ask, allow, decline.")
    for name, command in (("list", list_), ("ask", ask), ("allow", allow), ("decline", decline)):
        group.command(name)(command)
    app.add_typer(group, name="authorizations", rich_help_panel="Operators")


@guarded
def list_(
    *, blueprint: Annotated[str, typer.Option("--blueprint", help="Only of this blueprint.")] = "",
    state: Annotated[str, typer.Option("--state", help="`requested`, `authorized` or `declined`.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List who may, or asks to, use a blueprint; without being an operator, what concerns yourself."""
    _tell(o.client().authorizations(blueprint=blueprint, state=state), as_json)


@guarded
def ask(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")], *, message: Message = "", as_json: o.AsJson = False
) -> None:
    """Ask to be allowed to use a blueprint."""
    _tell([o.client().ask_authorization(blueprint, message=message)], as_json)


@guarded
def allow(
    what: What, *, user: o.User = "", group: o.Group = "", message: Message = "", as_json: o.AsJson = False
) -> None:
    """Let who asked, or a user or group who did not ask, use a blueprint.

    [dim]drydock authorizations allow 3[/dim]    [dim]drydock authorizations allow lab --user ada[/dim]
    """
    _tell([_decide(what, user, group, message, allowed=True)], as_json)


@guarded
def decline(
    what: What, *, user: o.User = "", group: o.Group = "", message: Message = "", as_json: o.AsJson = False
) -> None:
    """Decline it, or take it back; what is leased stays leased."""
    _tell([_decide(what, user, group, message, allowed=False)], as_json)


def _decide(what: str, user: str, group: str, message: str, *, allowed: bool) -> AuthorizationInfo:
    client = o.client()
    if user or group:
        return client.decide_authorization(what, allow=allowed, user=user, group=group, message=message)
    if not what.isascii() or not what.isdigit():
        raise InvalidRequest(
            f"Of whom, on {what!r}?", field="user",
            hint="Give an authorization's number, or --user or --group with the blueprint.",
        )  # fmt: skip
    return client.settle_authorization(int(what), allow=allowed, message=message)


def _tell(found: list[AuthorizationInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [(a.id, a.blueprint, a.user, a.group, a.state, a.decided_by, a.note) for a in found]
    return output.table(
        ("id", "blueprint", "user", "group", "state", "decided by", "note"), rows, empty="No authorizations."
    )
