"""The table of what does the same from the shell and by REST as a page, a list or an act of the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Equivalent:
    """What is done, the command, and the call: both with `{names}` of what it is about."""

    what: str
    command: str = ""
    method: str = ""
    path: str = ""
    """Below `/api/v1/`; empty where REST has nothing."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """What to send as JSON; capitals stand for what is to be filled in."""


def _row(what: str, command: str = "", method: str = "", path: str = "", **body: Any) -> Equivalent:
    return Equivalent(what=what, command=command, method=method, path=path, body=body)


def _acts(model: str, where: str, command: str, path: str, acts: tuple[tuple[str, str], ...]) -> dict[str, Equivalent]:
    """Acts that need nothing to be said: `POST` to an address of the same name."""
    return {
        f"{model}.{act}": _row(label, f"drydock {where}{act} {command}", "POST", f"{path}/{act}") for act, label in acts
    }


LISTS: dict[str, Equivalent] = {
    "attention": _row("What needs attention", "drydock attention", "GET", "attention"),
    "events": _row("What happened", "drydock events --follow", "GET", "events"),
    "leases": _row("Leases", "drydock leases", "GET", "leases"),
    "resources": _row("Resources", "drydock resources list", "GET", "resources"),
    "blueprints": _row("Blueprints", "drydock blueprints list", "GET", "blueprints"),
    "kinds": _row("Kinds", "drydock blueprints kinds", "GET", "kinds"),
    "authorizations": _row("Authorizations", "drydock authorizations list", "GET", "authorizations"),
    "quotas": _row("Quotas", "drydock quotas list", "GET", "quotas"),
    "budgets": _row("Budgets", "drydock budgets list", "GET", "budgets"),
    "usage": _row("What was spent", "drydock usage --by owner", "GET", "usage?by=owner"),
    "usage.records": _row("As a table", "drydock usage --by lease --csv", "GET", "usage/records?as=csv"),
    "credentials": _row("Credentials", "drydock credentials list", "GET", "credentials"),
    "offers": _row("Offers", "drydock offers --gpu MODEL --max-price 5", "GET", "offers?gpu=MODEL&max_price=5"),
    "locations": _row("Where accounts are read", "drydock locations", "GET", "locations"),
    "instance-types": _row("Offers by type", "drydock instance-types", "GET", "instance-types"),
    "jobs": _row("Jobs", "drydock job list", "GET", "jobs"),
    "workers": _row("Workers", "drydock workers", "GET", "workers"),
    "orphans": _row("Orphans", "drydock orphans list", "GET", "orphans"),
    "fleet": _row("The fleet", "drydock fleet", "GET", "fleet"),
    "instances": _row("Instances", "drydock instances list", "GET", "instances"),
    "tokens": _row("Tokens", "drydock tokens list"),
    "installation": _row("This installation", "drydock installation"),
    "doctor": _row("Engines, workers, keys", "drydock doctor"),
}
LEASES = {
    "lease": _row("This lease", "drydock show {id}", "GET", "leases/{id}"),
    "lease.history": _row("Its timeline", "drydock events --lease {id}", "GET", "leases/{id}/events"),
    "lease.release": _row("Release", "drydock release {id}", "POST", "leases/{id}/release"),
    "lease.extend": _row("Extend", "drydock extend {id} 2h", "POST", "leases/{id}/extend", ttl="2h"),
    **_acts("lease", "", "{id}", "leases/{id}", (
        ("hold", "Hold"), ("unhold", "End the hold"), ("retry", "Retry now"),
    )),
    "leasegroup": _row("This group", "", "GET", "groups/{id}"),
    "job": _row("This job", "drydock job show {id}", "GET", "jobs/{id}"),
    "job.output": _row("Its output", "drydock job output {id}", "GET", "jobs/{id}/output"),
    "run.resolve": _row("Resolve the hold", "drydock resolve --{side} {side_id}", "POST", "{side}s/{side_id}/resolve"),
}  # fmt: skip
RESOURCES = {
    "resource": _row("This resource", "drydock resources show {id}", "GET", "resources/{id}"),
    "resource.history": _row("Its timeline", "drydock events --resource {id}", "GET", "events?resource={id}"),
    **_acts("resource", "resources ", "{id}", "resources/{id}", (
        ("check", "Check now"), ("drain", "Drain"), ("undrain", "Undrain"), ("unquarantine", "End quarantine"),
        ("retire", "Retire"),
    )),
    "resource.register": _row(
        "Register a host", "drydock resources register {blueprint} address=ADDRESS host_keys=KEY", "POST",
        "blueprints/{blueprint}/resources", address="ADDRESS", host_keys=["KEY"],
    ),
    "resource.remove": _row("Remove", "drydock resources remove {id}", "POST", "resources/{id}/retire"),
    "resource.change": _row(
        "Correct its registration", "drydock resources change {id} address=10.0.0.8", "PATCH", "resources/{id}",
        address="10.0.0.8",
    ),
    "resource.power": _row(
        "Power", "drydock resources power {id} cycle", "POST", "resources/{id}/power", wanted="cycle"
    ),
    "resource.reboot": _row("Reboot", "drydock machine reboot --resource {id}", "POST", "resources/{id}/reboot"),
    "resource.resize": _row(
        "Larger disk", "drydock machine resize --resource {id} 100", "POST", "resources/{id}/resize", disk_gib=100
    ),
    "resource.change-type": _row(
        "Change type", "drydock machine change-type --resource {id} TYPE", "POST", "resources/{id}/change-type",
        type_name="TYPE",
    ),
    "resource.tags": _row(
        "Tags", "drydock machine tag --resource {id} NAME=VALUE", "POST", "resources/{id}/tags", tags={"NAME": "VALUE"}
    ),
    "resource.console": _row("Console", "drydock machine console --resource {id}", "POST", "resources/{id}/console"),
    "resource.quarantine": _row(
        "Quarantine", "drydock resources quarantine {id} NOTE", "POST", "resources/{id}/quarantine",
        message="NOTE",
    ),
    "resource.force_destroy": _row(
        "Force destroy", "drydock resources destroy {id} --force --reason WHY", "POST", "resources/{id}/force_destroy",
        reason="WHY",
    ),
}  # fmt: skip
BLUEPRINTS = {
    "blueprint": _row("This blueprint", "drydock blueprints show {name}", "GET", "blueprints/{name}"),
    "blueprint.add": _row(
        "Add one", "drydock blueprints add NAME KIND KEY=VALUE", "POST", "blueprints",
        name="NAME", kind="KIND", config={"KEY": "VALUE"},
    ),
    "blueprint.change": _row(
        "Change it", "drydock blueprints change {name} KEY=VALUE", "PATCH", "blueprints/{name}",
        config={"KEY": "VALUE"},
    ),
    **_acts("blueprint", "blueprints ", "{name}", "blueprints/{name}", (
        ("check", "Check"), ("enable", "Enable"), ("disable", "Disable"), ("drain", "Drain"), ("undrain", "Undrain"),
    )),
    "blueprint.remove": _row("Remove", "drydock blueprints remove {name}", "DELETE", "blueprints/{name}"),
    "rememberederror.clear": _row(
        "Forget what is remembered of its blueprint", "drydock blueprints forget {blueprint}", "POST", "errors/clear",
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
    "authorization.add": _row(
        "Allow a user", "drydock authorizations allow BLUEPRINT --user USER", "POST", "authorizations/decide",
        blueprint="BLUEPRINT", user="USER",
    ),
    "quota.add": _row(
        "Set limits", "drydock quotas set --user USER leases=5", "PUT", "quotas", user="USER", max_leases=5
    ),
    "quota.delete": _row("Lift all limits", "drydock quotas remove --user USER", "DELETE", "quotas?user=USER"),
    "budget.add": _row(
        "Set a budget", "drydock budgets set 2.50 --user USER", "PUT", "budgets", user="USER", max_hourly=2.5
    ),
    "budget.delete": _row("Remove it", "drydock budgets remove --user USER", "DELETE", "budgets?user=USER"),
    "credential": _row("This credential", "drydock credentials show {name}", "GET", "credentials/{name}"),
    "credential.add": _row(
        "Store one", "drydock credentials add NAME FIELD=@FILE", "POST", "credentials",
        name="NAME", secrets={"FIELD": "SECRET"},
    ),
    "credential.change": _row(
        "Change it", "drydock credentials replace {name} --note NOTE", "PATCH", "credentials/{name}", note="NOTE"
    ),
    "credential.delete": _row("Remove", "drydock credentials remove {name}", "DELETE", "credentials/{name}"),
    "credential.read": _row("Read now", "drydock credentials read {name}", "POST", "credentials/{name}/read"),
    "reading.read": _row("Read now", "drydock credentials read {name}", "POST", "credentials/{name}/read"),
    "reading": _row("Its account", "drydock credentials show {name}", "GET", "credentials/{name}"),
    "listing": _row(
        "This type", "drydock offers --type {type} --credential {name} --all", "GET",
        "offers?type={type}&credential={name}&all=true",
    ),
    "stray.destroy": _row("Have it destroyed", "drydock orphans destroy {id}", "POST", "orphans/{id}/destroy"),
    "stray.adopt": _row("Give it a row again", "drydock orphans adopt {id}", "POST", "orphans/{id}/adopt"),
    "token.add": _row("Make one", "drydock tokens create NAME --scope read"),
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
"""Model -> what does the same as its list."""
OF_ROW = {
    "lease": ("lease", "lease.history", "lease.release"), "resource": ("resource", "resource.history"),
    "blueprint": ("blueprint", "blueprint.change"), "job": ("job", "job.output"), "leasegroup": ("leasegroup",),
    "credential": ("credential", "credential.change", "credential.read"), "reading": ("reading", "reading.read"),
    "listing": ("listing", "offers"), "allowance": ("reading", "offers"),
}  # fmt: skip
"""Model -> what does the same as a row's page; others say what lists their like."""
