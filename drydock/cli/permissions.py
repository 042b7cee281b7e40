"""`drydock authorizations` and `drydock quotas`: permissions to use blueprints, and limits on their use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import AuthorizationInfo, QuotaInfo


AuthorizationOrBlueprint = Annotated[
    str,
    typer.Argument(metavar="ID|BLUEPRINT", help="An authorization's number; or a blueprint, with --user or --group."),
]

Message = Annotated[str, typer.Option("--message", "-m", help="Reason, stored with the decision.")]


def add_authorizations(app: typer.Typer) -> None:
    """Add `drydock authorizations`."""
    group = o.group(
        list_authorizations, "Authorizations of users and groups to use blueprints: list, ask, allow, decline."
    )
    for name, command in (
        ("list", list_authorizations),
        ("ask", ask_authorization),
        ("allow", allow),
        ("decline", decline),
    ):
        group.command(name)(command)
    app.add_typer(group, name="authorizations", rich_help_panel="Operators")


@guarded
def list_authorizations(
    *, blueprint: Annotated[str, typer.Option("--blueprint", help="Only authorizations for this blueprint.")] = "",
    state: Annotated[str, typer.Option("--state", help="`requested`, `authorized` or `declined`.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List authorizations and requests for them. Users who are not operators see their own."""
    _tell_authorizations(o.client().authorizations(blueprint=blueprint, state=state), as_json)


@guarded
def ask_authorization(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")], *, message: Message = "", as_json: o.AsJson = False
) -> None:
    """Request permission to use a blueprint."""
    _tell_authorizations([o.client().ask_authorization(blueprint, message=message)], as_json)


@guarded
def allow(
    what: AuthorizationOrBlueprint,
    *,
    user: o.User = "",
    group: o.Group = "",
    message: Message = "",
    as_json: o.AsJson = False,
) -> None:
    """Allow a user or a group to use a blueprint, whether or not they have requested it.

    [dim]drydock authorizations allow 3[/dim]    [dim]drydock authorizations allow lab --user ada[/dim]
    """
    _tell_authorizations([_decide(what, user, group, message, allowed=True)], as_json)


@guarded
def decline(
    what: AuthorizationOrBlueprint,
    *,
    user: o.User = "",
    group: o.Group = "",
    message: Message = "",
    as_json: o.AsJson = False,
) -> None:
    """Decline a request, or withdraw an authorization. Existing leases stay."""
    _tell_authorizations([_decide(what, user, group, message, allowed=False)], as_json)


def _decide(what: str, user: str, group: str, message: str, *, allowed: bool) -> AuthorizationInfo:
    client = o.client()
    if user or group:
        return client.decide_authorization(what, allow=allowed, user=user, group=group, message=message)
    if not what.isascii() or not what.isdigit():
        raise InvalidRequest(
            f"Name the user or group that may or may not use blueprint {what!r}.", field="user",
            hint="Give the number of an authorization, or --user or --group with the blueprint.",
        )  # fmt: skip
    return client.settle_authorization(int(what), allow=allowed, message=message)


def _tell_authorizations(found: list[AuthorizationInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [(a.id, a.blueprint, a.user, a.group, a.state, a.decided_by, a.note) for a in found]
    return output.table(
        ("id", "blueprint", "user", "group", "state", "decided by", "note"), rows, empty="No authorizations."
    )


def add_quotas(app: typer.Typer) -> None:
    """Add `drydock quotas`."""
    group = o.group(list_quotas, "Limits on what users and groups may hold, and for how long: list, set, remove.")
    for name, command in (("list", list_quotas), ("set", set_quota), ("remove", remove_quota)):
        group.command(name)(command)
    app.add_typer(group, name="quotas", rich_help_panel="Operators")


@guarded
def list_quotas(*, as_json: o.AsJson = False) -> None:
    """List quotas. Users who are not operators see the quotas that limit them."""
    _tell_quotas(o.client().quotas(), as_json)


@guarded
def set_quota(
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT=N...",
            help="leases, slots, vcpus, ram, disk, extra.CLASS, ttl, default-ttl; `none` removes a limit.",
        ),
    ],
    *, user: o.User = "", group: o.Group = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Set some limits of a user or a group; the others stay.

    `extra.CLASS` limits an additional class of capacity, such as `extra.gpu=4`.
    `ttl` is the longest duration of a lease; `default-ttl` is the duration of leases that specify no end.

    [dim]drydock quotas set --user ada leases=5 ram=64GiB ttl=30d default-ttl=8h[/dim]
    """
    words = o.words(limits, "limits")
    extra = {name: text for name, text in words.items() if name.startswith(_EXTRA)}
    wanted: dict[str, Any] = {
        _LIMITS.get(name, (name, int))[0]: _limit(name, text) for name, text in words.items() if name not in extra
    }
    if extra:
        wanted["max_extra"] = {name.removeprefix(_EXTRA): _limit("slots", text) for name, text in extra.items()}
    _tell_quotas([o.client().set_quota(user=user, group=group, limits=wanted)], as_json)


@guarded
def remove_quota(*, user: o.User = "", group: o.Group = "", as_json: o.AsJson = False) -> None:
    """Remove all limits of a user or a group."""
    o.client().remove_quota(user=user, group=group)
    output.emit({"removed": user or group}) if as_json else output.line(f"{user or group} no longer has a quota")


def _tell_quotas(found: list[QuotaInfo], as_json: bool) -> None:
    if as_json:
        return output.emit(found)
    rows = [
        (
            q.user,
            q.group,
            q.max_leases,
            q.max_slots,
            _vcpus(q),
            q.max_ram_mib,
            q.max_disk_mib,
            _extra(q),
            q.max_ttl,
            q.default_ttl,
        )
        for q in found
    ]
    columns = ("user", "group", "leases", "slots", "vcpus", "ram MiB", "disk MiB", "extra", "ttl", "default ttl")
    return output.table(columns, rows, empty="No quotas.")


_EXTRA = "extra."


def _extra(one: QuotaInfo) -> str:
    return ", ".join(f"{name}={most}" for name, most in sorted(one.max_extra.items()))


def _vcpus(one: QuotaInfo) -> str:
    return "" if one.max_cpu_millicores is None else f"{one.max_cpu_millicores / 1000:g}"


def _mebibytes(text: str) -> int:
    from drydock.core.units import mebibytes

    return mebibytes(text)


def _span(text: str) -> float:
    from drydock.core.units import duration

    return duration(text).total_seconds()


_LIMITS: dict[str, tuple[str, Callable[[str], float]]] = {
    "leases": ("max_leases", int), "slots": ("max_slots", int),
    "vcpus": ("max_cpu_millicores", lambda text: round(float(text) * 1000)),
    "ram": ("max_ram_mib", _mebibytes), "disk": ("max_disk_mib", _mebibytes),
    "ttl": ("max_ttl", _span), "default-ttl": ("default_ttl", _span),
}  # fmt: skip


def _limit(name: str, text: str) -> float | None:
    if name not in _LIMITS:
        raise InvalidRequest(
            f"Limit {name!r} does not exist.", field="limits", hint=f"Choose one of: {', '.join(_LIMITS)}."
        )
    if text == "none":
        return None
    try:
        return _LIMITS[name][1](text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a number.", field=name) from None
