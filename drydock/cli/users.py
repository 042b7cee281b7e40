"""`drydock users`: who may sign in, who is an operator, and who is in which group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded

if TYPE_CHECKING:
    from leases.client import PasswordInfo, UserInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Stdin = Annotated[
    bool, typer.Option("--stdin", help="Read the password from standard input, instead of making one up.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "Who may sign in: list, add, password, disable, enable, groups.")
    for name, command in (
        ("list", list_), ("add", add), ("password", password), ("disable", disable), ("enable", enable),
        ("groups", groups),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="users", rich_help_panel="Operators")


@guarded
def list_(*, as_json: o.AsJson = False) -> None:
    """List users, their groups, and whether they can sign in."""
    _tell(o.client().users(), as_json)


@guarded
def add(
    name: Name, *, operator: Annotated[bool, typer.Option("--operator", help="Sees and changes everything.")] = False,
    group: Annotated[list[str] | None, typer.Option("--group", help="Put into this group; repeatable.")] = None,
    stdin: Stdin = False, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Add a user, and print the password that was made up. It is shown only now.

    [dim]drydock users add ada --group lab[/dim]
    """
    made = o.client().add_user(name, operator=operator, groups=group or [], password=_given(stdin))
    _tell_password(made, as_json)


@guarded
def password(name: Name, *, stdin: Stdin = False, as_json: o.AsJson = False) -> None:
    """Give a user another password, and print the one that was made up. It is shown only now."""
    _tell_password(o.client().set_user_password(name, password=_given(stdin)), as_json)


@guarded
def disable(name: Name, *, as_json: o.AsJson = False) -> None:
    """Refuse a user's password and tokens. Leases stay until they end."""
    _tell([o.client().switch_user(name, "disable")], as_json)


@guarded
def enable(name: Name, *, as_json: o.AsJson = False) -> None:
    """Accept a user's password and tokens again."""
    _tell([o.client().switch_user(name, "enable")], as_json)


@guarded
def groups(
    name: Name, *,
    join: Annotated[list[str] | None, typer.Option("--add", metavar="GROUP", help="Join it; repeatable.")] = None,
    leave: Annotated[list[str] | None, typer.Option("--remove", metavar="GROUP", help="Leave it; repeatable.")] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show a user's groups, or change them. A group that is not there yet is made.

    [dim]drydock users groups ada --add lab[/dim]
    """
    client = o.client()
    changed = bool(join or leave)
    found = client.change_user_groups(name, add=join or [], remove=leave or []) if changed else client.user(name)
    _tell([found], as_json)


def _given(stdin: bool) -> str | None:
    if not stdin:
        return None
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _tell_password(made: PasswordInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(made)
    if made.password:
        output.line(made.password)
        output.say(f"the password of {made.user.name}; it is shown only now")
    else:
        output.say(f"the password of {made.user.name} was set")
    return None


def _tell(found: list[UserInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [(u.name, _state(u), _role(u), list(u.groups), output.ago(u.last_login)) for u in found]
    return output.table(("name", "state", "role", "groups", "last signed in"), rows, empty="No users.")


def _state(user: UserInfo) -> str:
    return "disabled" if not user.active else "enabled" if user.password else "enabled, no password"


def _role(user: UserInfo) -> str:
    return "administrator" if user.administrator else "operator" if user.operator else "user"
