"""Equivalent commands and REST calls for each page, list and action of the console."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest
from django.urls import Resolver404, get_script_prefix, resolve

import drydock_client.protocol  # noqa: F401  (declares the operations)
from drydock_client.operations import OPERATIONS


@dataclass(frozen=True, kw_only=True)
class Equivalent:
    """An operation with its command and its REST call, both with placeholders for `{names}`."""

    what: str
    command: str = ""
    method: str = ""
    path: str = ""
    """The path below `/api/v1/`, or an empty string if REST has no equivalent."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The JSON body to send. Words in capitals are placeholders."""


def _row(what: str, command: str = "", method: str = "", path: str = "", **body: Any) -> Equivalent:
    return Equivalent(what=what, command=command, method=method, path=path, body=body)


def _declared(operation: str, what: str, command: str, *, act: str = "", **body: Any) -> Equivalent:
    """Return a row with the call of a declared operation."""
    found = OPERATIONS[operation]
    return _row(what, command, found.method, found.path.replace("{act}", act), **body)


def _actions(
    model: str, where: str, command: str, path: str, acts: tuple[tuple[str, str], ...]
) -> dict[str, Equivalent]:
    """Return the equivalents of actions without arguments, each a `POST` to an address with the action's name."""
    return {
        f"{model}.{act}": _row(label, f"drydock {where}{act} {command}", "POST", f"{path}/{act}") for act, label in acts
    }


LISTS: dict[str, Equivalent] = {
    "attention": _declared("attention", "Needs attention", "drydock attention"),
    "events": _row("Events", "drydock events --follow", "GET", "events"),
    "leases": _row("Leases", "drydock leases", "GET", "leases"),
    "resources": _row("Resources", "drydock resources list", "GET", "resources"),
    "blueprints": _declared("blueprints", "Blueprints", "drydock blueprints list"),
    "kinds": _declared("kinds", "Kinds", "drydock blueprints kinds"),
    "authorizations": _declared("authorizations", "Authorizations", "drydock authorizations list"),
    "quotas": _declared("quotas", "Quotas", "drydock quotas list"),
    "budgets": _declared("budgets", "Budgets", "drydock budgets list"),
    "usage": _row("Usage and cost", "drydock usage --by owner", "GET", "usage?by=owner"),
    "usage.records": _row("Usage records as CSV", "drydock usage --by lease --csv", "GET", "usage/records?as=csv"),
    "credentials": _declared("credentials", "Credentials", "drydock credentials list"),
    "offers": _row("Offers", "drydock offers --gpu MODEL --max-price 5", "GET", "offers?gpu=MODEL&max_price=5"),
    "locations": _declared("locations", "Locations", "drydock locations"),
    "instance-types": _row("Offers by type", "drydock instance-types", "GET", "instance-types"),
    "jobs": _declared("jobs", "Jobs", "drydock job list"),
    "workers": _row("Workers", "drydock workers", "GET", "workers"),
    "orphans": _declared("orphans", "Orphans", "drydock orphans list"),
    "fleet": _declared("fleet", "The fleet", "drydock fleet"),
    "instances": _row("Instances", "drydock instances list", "GET", "instances"),
    "tokens": _row("Tokens", "drydock tokens list"),
    "installation": _row("This installation", "drydock installation"),
    "doctor": _row("Engines, workers, keys", "drydock doctor"),
}

LEASES = {
    "lease": _row("This lease", "drydock show {id}", "GET", "leases/{id}"),
    "lease.history": _row("Timeline", "drydock events --lease {id}", "GET", "leases/{id}/events"),
    "lease.release": _declared("release", "Release", "drydock release {id}"),
    "lease.extend": _declared("extend", "Extend", "drydock extend {id} 2h", ttl="2h"),
    "lease.transfer": _declared("transfer", "Transfer", "drydock transfer {id} USER", to="USER"),
    "lease.note": _declared("set_note", "Note", "drydock note {id} TEXT", note="TEXT"),
    **_actions("lease", "", "{id}", "leases/{id}", (
        ("hold", "Hold"), ("unhold", "End the hold"), ("retry", "Retry now"),
    )),
    "leasegroup": _row("This group", "", "GET", "groups/{id}"),
    "job": _declared("job", "This job", "drydock job show {id}"),
    "job.output": _row("Output", "drydock job output {id}", "GET", "jobs/{id}/output"),
    "run.resolve": _row("Resolve", "drydock resolve --{side} {side_id}", "POST", "{side}s/{side_id}/resolve"),
}  # fmt: skip

RESOURCES = {
    "resource": _declared("resource", "This resource", "drydock resources show {id}"),
    "resource.history": _row("Timeline", "drydock events --resource {id}", "GET", "events?resource={id}"),
    **_actions("resource", "resources ", "{id}", "resources/{id}", (
        ("check", "Check now"), ("drain", "Drain"), ("undrain", "Undrain"), ("unquarantine", "End quarantine"),
        ("retire", "Retire"),
    )),
    "resource.register": _declared(
        "register", "Register a host", "drydock resources register {blueprint} address=ADDRESS host_keys=KEY",
        address="ADDRESS", host_keys=["KEY"],
    ),
    "resource.remove": _declared("change_resource", "Remove", "drydock resources remove {id}", act="retire"),
    "resource.change": _declared(
        "change_registration", "Correct the registration", "drydock resources change {id} address=10.0.0.8",
        address="10.0.0.8",
    ),
    "resource.power": _declared(
        "change_resource", "Power", "drydock resources power {id} cycle", act="power", wanted="cycle",
    ),
    "resource.reboot": _row("Reboot", "drydock machine reboot --resource {id}", "POST", "resources/{id}/reboot"),
    "resource.resize": _row(
        "Resize disk", "drydock machine resize --resource {id} 100", "POST", "resources/{id}/resize", disk_gib=100
    ),
    "resource.change-type": _row(
        "Change type", "drydock machine change-type --resource {id} TYPE", "POST", "resources/{id}/change-type",
        type_name="TYPE",
    ),
    "resource.tags": _row(
        "Tags", "drydock machine tag --resource {id} NAME=VALUE", "POST", "resources/{id}/tags", tags={"NAME": "VALUE"}
    ),
    "resource.console": _row("Console", "drydock machine console --resource {id}", "POST", "resources/{id}/console"),
    "resource.quarantine": _declared(
        "change_resource", "Quarantine", "drydock resources quarantine {id} NOTE", act="quarantine", message="NOTE",
    ),
    "resource.force_destroy": _declared(
        "change_resource", "Force destroy", "drydock resources destroy {id} --force --reason WHY",
        act="force_destroy", reason="WHY",
    ),
}  # fmt: skip

BLUEPRINTS = {
    "blueprint": _declared("blueprint", "This blueprint", "drydock blueprints show {name}"),
    "blueprint.add": _row(
        "Add a blueprint", "drydock blueprints add NAME KIND KEY=VALUE", "POST", "blueprints",
        name="NAME", kind="KIND", config={"KEY": "VALUE"},
    ),
    "blueprint.change": _row(
        "Change the blueprint", "drydock blueprints change {name} KEY=VALUE", "PATCH", "blueprints/{name}",
        config={"KEY": "VALUE"},
    ),
    **_actions("blueprint", "blueprints ", "{name}", "blueprints/{name}", (
        ("check", "Check"), ("enable", "Enable"), ("disable", "Disable"), ("drain", "Drain"), ("undrain", "Undrain"),
    )),
    "blueprint.remove": _declared("remove_blueprint", "Remove", "drydock blueprints remove {name}"),
    "rememberederror.clear": _declared(
        "clear_errors", "Clear the remembered errors of the blueprint", "drydock blueprints forget {blueprint}",
        blueprint="{blueprint}",
    ),
}  # fmt: skip

ACCESS = {
    "authorization.approve": _row(
        "Approve", "drydock authorizations allow {id}", "POST", "authorizations/{id}/approve"
    ),
    "authorization.decline": _row(
        "Decline", "drydock authorizations decline {id}", "POST", "authorizations/{id}/decline"
    ),
    "authorization.add": _declared(
        "decide_authorization", "Authorize a user", "drydock authorizations allow BLUEPRINT --user USER",
        blueprint="BLUEPRINT", user="USER",
    ),
    "quota.add": _row(
        "Set limits", "drydock quotas set --user USER leases=5", "PUT", "quotas", user="USER", max_leases=5
    ),
    "quota.delete": _row("Remove the quota", "drydock quotas remove --user USER", "DELETE", "quotas?user=USER"),
    "budget.add": _declared(
        "set_budget", "Set a budget", "drydock budgets set 2.50 --user USER", user="USER", max_hourly=2.5,
    ),
    "budget.delete": _row("Remove the budget", "drydock budgets remove --user USER", "DELETE", "budgets?user=USER"),
    "credential": _declared("credential", "This credential", "drydock credentials show {name}"),
    "credential.add": _declared(
        "add_credential", "Add a credential", "drydock credentials add NAME FIELD=@FILE",
        name="NAME", secrets={"FIELD": "SECRET"},
    ),
    "credential.change": _declared(
        "change_credential", "Change the credential", "drydock credentials replace {name} --note NOTE", note="NOTE",
    ),
    "credential.delete": _declared("remove_credential", "Remove", "drydock credentials remove {name}"),
    "credential.read": _declared("read_credential", "Poll now", "drydock credentials read {name}"),
    "reading.read": _declared("read_credential", "Poll now", "drydock credentials read {name}"),
    "reading": _declared("credential", "The account", "drydock credentials show {name}"),
    "listing": _row(
        "This type", "drydock offers --type {type} --credential {name} --all", "GET",
        "offers?type={type}&credential={name}&all=true",
    ),
    "stray.destroy": _declared("settle_orphan", "Destroy", "drydock orphans destroy {id}", act="destroy"),
    "stray.adopt": _declared("settle_orphan", "Adopt", "drydock orphans adopt {id}", act="adopt"),
    "token.add": _row("Create a token", "drydock tokens create NAME --scope read"),
    "token.revoke": _row("Revoke", "drydock tokens revoke {id}"),
    "installation.confirm": _row("Confirm", "drydock confirm-installation"),
    "installation.suspend": _row("Suspend", "drydock suspend-installation"),
}  # fmt: skip

EQUIVALENTS = {**LISTS, **LEASES, **RESOURCES, **BLUEPRINTS, **ACCESS}

OF_LIST = {
    "lease": ("leases", "events"), "resource": ("resources",), "blueprint": ("blueprints", "blueprint.add", "kinds"),
    "event": ("events",), "authorization": ("authorizations", "authorization.add"), "quota": ("quotas", "quota.add"),
    "budget": ("budgets", "budget.add"), "usage": ("usage", "usage.records"),
    "credential": ("credentials", "credential.add"), "job": ("jobs",), "rememberederror": ("attention",),
    "run": ("attention",), "worker": ("workers", "doctor"), "installation": ("installation", "doctor"),
    "leasegroup": ("leases",), "share": ("leases", "resources"), "slotlock": ("leases",), "debt": ("resources",),
    "failure": ("attention", "resources"),
    "capacity": ("resources",), "part": ("resources",), "sync": ("blueprints",), "stray": ("orphans",),
    "listing": ("offers", "instance-types"), "reading": ("credentials", "locations"),
    "allowance": ("credentials", "offers"),
    "watch": ("leases",), "keptoutput": ("jobs",), "search": ("orphans",), "token": ("tokens", "token.add"),
}  # fmt: skip

"""The equivalents of a model's list, by model."""

OF_ROW = {
    "lease": ("lease", "lease.history", "lease.release"), "resource": ("resource", "resource.history"),
    "blueprint": ("blueprint", "blueprint.change"), "job": ("job", "job.output"), "leasegroup": ("leasegroup",),
    "credential": ("credential", "credential.change", "credential.read"), "reading": ("reading", "reading.read"),
    "listing": ("listing", "offers"), "allowance": ("reading", "offers"),
}  # fmt: skip

"""The equivalents of a row's page, by model. Other models show the equivalents of their list."""

API = "api/v1/"


@dataclass(frozen=True, kw_only=True)
class SameElsewhere:
    """A command and a REST call; either may be empty."""

    what: str
    command: str = ""
    call: str = ""


def of_list(request: HttpRequest, model: str) -> list[SameElsewhere]:
    """Return the equivalents of a model's list, also for models that are not ours."""
    return [line_for(request, key, {}) for key in OF_LIST.get(model, ())]


def of_row(request: HttpRequest, row: Any) -> list[SameElsewhere]:
    """Return the equivalents of a row's page, or of its list if the page has none."""
    keys = OF_ROW.get(row._meta.model_name)
    return (
        of_list(request, row._meta.model_name) if keys is None else [_line_for_row(request, key, row) for key in keys]
    )


def of_action(request: HttpRequest, model: str, act: str, rows: list[Any]) -> list[SameElsewhere]:
    """Return the equivalents of an action, one line for each of the first rows; also for add and delete."""
    key = f"{model}.{act}"
    if key not in EQUIVALENTS:
        return of_list(request, model)
    return [_line_for_row(request, key, row) for row in rows[:5]] if rows else [line_for(request, key, {})]


def of_history(request: HttpRequest, model: str, pk: str) -> list[SameElsewhere]:
    """Return the equivalents of the history of a row."""
    key = f"{model}.history"
    return [line_for(request, key, {"id": pk})] if key in EQUIVALENTS else [line_for(request, "events", {})]


def _line_for_row(request: HttpRequest, key: str, row: Any) -> SameElsewhere:
    return line_for(request, key, names_of(row))


def line_for(request: HttpRequest, key: str, names: Mapping[str, Any]) -> SameElsewhere:
    """Return one line with the names filled in."""
    found = EQUIVALENTS[key]
    given = {name: shlex.quote(str(value)) for name, value in names.items()}
    return SameElsewhere(what=found.what, command=found.command.format(**given), call=_call(request, found, names))


def names_of(row: Any) -> dict[str, Any]:
    """Return the names of a row in commands and paths."""
    found = {"id": row.pk, "name": getattr(row, "name", "")}
    if row._meta.model_name == "run":
        found["side"], found["side_id"] = ("lease", row.lease_id) if row.lease_id else ("resource", row.resource_id)
    if row._meta.model_name == "rememberederror":
        found["blueprint"] = row.blueprint.name
    if row._meta.model_name in ("listing", "reading", "allowance"):
        found["name"], found["type"] = row.credential.name, getattr(row, "type", "")
    return found


def _call(request: HttpRequest, found: Equivalent, names: Mapping[str, Any]) -> str:
    if not found.path:
        return ""
    quoted = {name: quote(str(value), safe="") for name, value in names.items()}
    at = f"{get_script_prefix()}{API}{found.path.format(**quoted)}"
    if not path_exists(at.partition("?")[0]):
        return ""
    return " ".join(
        [
            "curl", *([] if found.method == "GET" else ["-X", found.method]),
            '-H "Authorization: Bearer $DRYDOCK_TOKEN"', *_body(found, names),
            shlex.quote(request.build_absolute_uri(at)),
        ]
    )  # fmt: skip


def _body(found: Equivalent, names: Mapping[str, Any]) -> list[str]:
    if not found.body:
        return []
    given = {key: one.format(**names) if isinstance(one, str) else one for key, one in found.body.items()}
    return ["--json", shlex.quote(json.dumps(given))]


def path_exists(path: str) -> bool:
    """Return whether the API has this path, ignoring the catch-all for wrong addresses."""
    try:
        return bool(resolve(path).route.removeprefix("api/"))
    except Resolver404:
        return False
