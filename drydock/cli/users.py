"""`drydock users`, `tokens`, `login` and `logout`: accounts, and the tokens that programs use instead of passwords."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output, session
from drydock.cli.toolkit.exits import guarded
from drydock.cli.toolkit.session import server_address
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import PasswordInfo, TokenInfo, UserInfo


Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]

Stdin = Annotated[
    bool, typer.Option("--stdin", help="Read the password from standard input instead of generating one.")
]


def add_users(app: typer.Typer) -> None:
    """Add `drydock users`."""
    group = o.group(list_users, "Users: list, add, password, disable, enable, groups.")
    for name, command in (
        ("list", list_users), ("add", add), ("password", password), ("disable", disable), ("enable", enable),
        ("groups", groups),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="users", rich_help_panel="Operators")


@guarded
def list_users(*, as_json: o.AsJson = False) -> None:
    """List users, their groups, and whether they can sign in."""
    _tell_users(o.client().users(), as_json)


@guarded
def add(
    name: Name, *, operator: Annotated[bool, typer.Option("--operator", help="Make the user an operator.")] = False,
    group: Annotated[list[str] | None, typer.Option("--group", help="Add the user to this group; repeatable.")] = None,
    stdin: Stdin = False, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Add a user, and print the generated password, which is shown only once.

    [dim]drydock users add ada --group lab[/dim]
    """
    made = o.client().add_user(name, operator=operator, groups=group or [], password=_password_given(stdin))
    _tell_password(made, as_json)


@guarded
def password(name: Name, *, stdin: Stdin = False, as_json: o.AsJson = False) -> None:
    """Set another password for a user. A generated password is printed, and shown only once."""
    _tell_password(o.client().set_user_password(name, password=_password_given(stdin)), as_json)


@guarded
def disable(name: Name, *, as_json: o.AsJson = False) -> None:
    """Disable a user's password and tokens. Leases stay until they end."""
    _tell_users([o.client().switch_user(name, "disable")], as_json)


@guarded
def enable(name: Name, *, as_json: o.AsJson = False) -> None:
    """Enable a user's password and tokens again."""
    _tell_users([o.client().switch_user(name, "enable")], as_json)


@guarded
def groups(
    name: Name, *,
    join: Annotated[list[str] | None, typer.Option("--add", metavar="GROUP", help="Group to join; repeatable.")] = None,
    leave: Annotated[
        list[str] | None, typer.Option("--remove", metavar="GROUP", help="Group to leave; repeatable.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show or change the groups of a user. A missing group is created.

    [dim]drydock users groups ada --add lab[/dim]
    """
    client = o.client()
    changed = bool(join or leave)
    found = client.change_user_groups(name, add=join or [], remove=leave or []) if changed else client.user(name)
    _tell_users([found], as_json)


def _password_given(stdin: bool) -> str | None:
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
        output.say(f"the password of {made.user.name}; it is shown only once")
    else:
        output.say(f"the password of {made.user.name} was set")
    return None


def _tell_users(found: list[UserInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [(u.name, _user_state(u), _role(u), list(u.groups), output.ago(u.last_login)) for u in found]
    return output.table(("name", "state", "role", "groups", "last signed in"), rows, empty="No users.")


def _user_state(user: UserInfo) -> str:
    return "disabled" if not user.active else "enabled" if user.password else "enabled, no password"


def _role(user: UserInfo) -> str:
    return "administrator" if user.administrator else "operator" if user.operator else "user"


Scope = Annotated[str, typer.Option("--scope", help="Scope: `read`, `lease`, or `operate` for operators.")]

TokenTtl = Annotated[
    str | None, typer.Option("--ttl", metavar="SPAN", help="Duration of validity; 90 days by default.")
]

TokenUser = Annotated[str | None, typer.Option("--user", help="For operators: only tokens of this user.")]


def add_tokens(app: typer.Typer) -> None:
    """Add `drydock tokens`."""
    group = typer.Typer(help="Tokens for the REST API: create, list, revoke.", no_args_is_help=True)
    for name, command in (("create", create_token), ("list", list_tokens), ("revoke", revoke_token)):
        group.command(name)(command)
    app.add_typer(group, name="tokens", rich_help_panel="Installation")


class _Tokens(Protocol):
    """The token operations that both this machine and a server offer."""

    def create_token(
        self, name: str, *, scope: str = "lease", ttl: str | None = None, user: str | None = None
    ) -> tuple[TokenInfo, str]: ...

    def tokens(self, *, user: str | None = None) -> list[TokenInfo]: ...

    def revoke_token(self, id: int) -> TokenInfo: ...


class _LocalTokens:
    """The tokens of this machine's installation."""

    def __init__(self) -> None:
        from drydock.cli.toolkit.session import connect_here

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
    return session.client(session.server_address()) if session.server_address() else _LocalTokens()


@guarded
def create_token(
    name: Annotated[str, typer.Argument(help="Purpose of the token.")], *,
    scope: Scope = "lease", ttl: TokenTtl = None, user: TokenUser = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Create a token and print it. It is shown only once."""
    made, secret = _tokens().create_token(name, scope=scope, ttl=ttl, user=user)
    from drydock_client.values import to_json

    if as_json:
        return output.emit({**to_json(made), "token": secret})
    output.line(secret)
    output.say(f"token {made.id} of {made.user}, scope {made.scope}, until {output.text(made.expires_at)}")
    output.say("the token is shown only once; store it with `drydock --server URL login` or in DRYDOCK_TOKEN")
    return None


@guarded
def list_tokens(*, user: TokenUser = None, as_json: o.AsJson = False) -> None:
    """List tokens, newest first. Operators see the tokens of all users."""
    found = _tokens().tokens(user=user)
    if as_json:
        return output.emit(found)
    rows = [
        (t.id, t.user, t.name, t.scope, f"...{t.tail}", _token_state(t), t.expires_at, output.ago(t.last_used_at))
        for t in found
    ]
    headers = ("id", "user", "name", "scope", "last 4", "state", "until", "used")
    return output.table(headers, rows, empty="No tokens.")


def _token_state(token: TokenInfo) -> str:
    return "revoked" if token.revoked_at else "expired" if token.expired else "valid"


@guarded
def revoke_token(
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="The token's number.")], *, as_json: o.AsJson = False
) -> None:
    """Revoke a token and all tokens that were created with it."""
    gone = _tokens().revoke_token(token)
    output.emit(gone) if as_json else output.line(f"token {gone.id} of {gone.user} is revoked")


def add_login(app: typer.Typer) -> None:
    """Add `drydock login` and `drydock logout`."""
    app.command("login", rich_help_panel="Installation")(login)
    app.command("logout", rich_help_panel="Installation")(logout)


def _required_server() -> str:
    if not server_address():
        raise InvalidRequest("No server was given.", field="server", hint="drydock --server https://HOST login")
    return server_address()


@guarded
def login(*, as_json: o.AsJson = False) -> None:
    """Store a token for a server; it is prompted for, or read from standard input."""
    from drydock_client import token_store
    from drydock_client.http import HttpClient

    address = _required_server()
    asked = sys.stdin.isatty()
    secret = typer.prompt("Token", hide_input=True, err=True) if asked else sys.stdin.readline()
    client = HttpClient(address, secret.strip())
    file = token_store.keep(address, secret.strip())
    if as_json:
        return output.emit({"server": address, "name": client.name, "operator": client.operator, "file": str(file)})
    output.say(f"You are logged in to {address} as {client.name}. The token is stored in {file}.")
    return None


@guarded
def logout(*, as_json: o.AsJson = False) -> None:
    """Delete the stored token of a server.

    It stays valid until it expires; `drydock tokens revoke` revokes it there.
    """
    from drydock_client import token_store

    address = _required_server()
    gone = token_store.forget(address)
    if as_json:
        return output.emit({"server": address, "forgotten": gone})
    output.say(f"The token for {address} was deleted." if gone else f"No token for {address} was stored.")
    return None
