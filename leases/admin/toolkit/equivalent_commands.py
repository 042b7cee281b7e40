"""The commands and REST calls that do the same as each page, list and action of the console."""

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
    """The CLI command and the REST call for one operation. Both contain placeholders such as `{id}`."""

    what: str
    command: str = ""
    method: str = ""
    path: str = ""
    """The path below `/api/v1/`, or an empty string if REST has no equivalent."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The JSON body to send. Words in capitals are placeholders."""


def _row(what: str, command: str = "", method: str = "", path: str = "", **body: Any) -> Equivalent:
    return Equivalent(what=what, command=command, method=method, path=path, body=body)


def declared(
    operation: str, command: str, *, what: str = "", act: str = "", query: str = "", **body: Any
) -> Equivalent:
    """Return the command and the REST call for a declared operation.

    For an action, `what` is its label.
    """
    found = OPERATIONS[operation]
    path = found.path.replace("{act}", act) + (f"?{query}" if query else "")
    return Equivalent(what=what, command=command, method=found.method, path=path, body=body)


LISTS: dict[str, Equivalent] = {
    "attention": declared("attention", "drydock attention", what="Items that need attention"),
    "events": declared("events", "drydock events --follow", what="Events"),
    "leases": declared("leases", "drydock leases", what="Leases"),
    "resources": declared("resources", "drydock resources list", what="Resources"),
    "blueprints": declared("blueprints", "drydock blueprints list", what="Blueprints"),
    "kinds": declared("kinds", "drydock blueprints kinds", what="Kinds"),
    "authorizations": declared("authorizations", "drydock authorizations list", what="Authorizations"),
    "quotas": declared("quotas", "drydock quotas list", what="Quotas"),
    "budgets": declared("budgets", "drydock budgets list", what="Budgets"),
    "usage": declared("usage", "drydock usage --by owner", what="Costs", query="by=owner"),
    "usage.records": declared("usage_records", "drydock usage --by lease --csv", what="Usage records", query="as=csv"),
    "credentials": declared("credentials", "drydock credentials list", what="Credentials"),
    "offers": declared(
        "offers", "drydock offers --gpu MODEL --max-price 5", what="Offers", query="gpu=MODEL&max_price=5"
    ),
    "locations": declared("locations", "drydock locations", what="Polled locations"),
    "instance-types": declared("instance_types", "drydock instance-types", what="Offers by type"),
    "jobs": declared("jobs", "drydock job list", what="Jobs"),
    "workers": declared("workers", "drydock workers", what="Workers"),
    "orphans": declared("orphans", "drydock orphans list", what="Orphans"),
    "hosts": declared("resources", "drydock hosts list", what="Hosts", query="type=host"),
    "erasures": declared("erasures", "drydock hosts records", what="Erasure records"),
    "fleet": declared("fleet", "drydock fleet", what="Fleet"),
    "instances": declared("instances", "drydock instances list", what="Instances"),
    "agents": declared("agents", "drydock agents list", what="Agents"),
    "hardware": declared("hardware_reports", "drydock hardware list", what="Hardware of hosts"),
    "tokens": _row("Tokens", "drydock tokens list"),
    "installation": _row("This installation", "drydock installation"),
    "doctor": _row("Checks of the installation", "drydock doctor"),
}

PAGES = {
    "lease": declared("lease", "drydock show {id}", what="This lease"),
    "lease.console": declared("lease_console", "drydock console {id}", what="Console of this lease"),
    "lease.evidence": declared("evidence", "drydock attest {id} --fetch FILE", what="Attestation evidence"),
    "lease.history": declared("lease_events", "drydock events --lease {id}", what="Events of this lease"),
    "leasegroup": declared("group", "", what="This group"),
    "job": declared("job", "drydock job show {id}", what="This job"),
    "job.output": declared("job_output", "drydock job output {id}", what="Output of this job"),
    "resource": declared("resource", "drydock resources show {id}", what="This resource"),
    "resource.history": declared(
        "events", "drydock events --resource {id}", what="Events of this resource", query="resource={id}"
    ),
    "resource.register": declared(
        "register", "drydock resources register {blueprint} address=ADDRESS host_keys=KEY", what="Register a host",
        address="ADDRESS", host_keys=["KEY"],
    ),
    "resource.change": declared(
        "change_registration", "drydock resources change {id} address=10.0.0.8", what="Correct the registration",
        address="10.0.0.8",
    ),
    "resource.act": declared(
        "start_act", "drydock resources act {id} {name} KEY=VALUE", what="Start this act", arguments={"KEY": "VALUE"},
    ),
    "resource.acts": declared("acts", "drydock resources acts {id}", what="Acts on this resource"),
    "resource.sensors": declared("sensors", "drydock hosts sensors {id}", what="Sensors of this resource"),
    "blueprint": declared("blueprint", "drydock blueprints show {name}", what="This blueprint"),
    "blueprint.add": declared(
        "add_blueprint", "drydock blueprints add NAME KIND KEY=VALUE", what="Add a blueprint",
        name="NAME", kind="KIND", config={"KEY": "VALUE"},
    ),
    "blueprint.change": declared(
        "change_blueprint", "drydock blueprints change {name} KEY=VALUE",
        what="Change this blueprint", config={"KEY": "VALUE"},
    ),
    "authorization.add": declared(
        "decide_authorization", "drydock authorizations allow BLUEPRINT --user USER", what="Allow a user",
        blueprint="BLUEPRINT", user="USER",
    ),
    "quota.add": declared(
        "set_quota", "drydock quotas set --user USER leases=5", what="Set a quota", user="USER", max_leases=5
    ),
    "quota.delete": declared(
        "remove_quota", "drydock quotas remove --user USER", what="Remove this quota", query="user=USER"
    ),
    "budget.add": declared(
        "set_budget", "drydock budgets set 2.50 --user USER", what="Set a budget", user="USER", max_hourly=2.5,
    ),
    "budget.delete": declared(
        "remove_budget", "drydock budgets remove --user USER", what="Remove this budget", query="user=USER"
    ),
    "credential": declared("credential", "drydock credentials show {name}", what="This credential"),
    "credential.add": declared(
        "add_credential", "drydock credentials add NAME FIELD=@FILE", what="Add a credential",
        name="NAME", secrets={"FIELD": "SECRET"},
    ),
    "credential.change": declared(
        "change_credential", "drydock credentials replace {name} --note NOTE",
        what="Change this credential", note="NOTE",
    ),
    "credential.delete": declared(
        "remove_credential", "drydock credentials remove {name}", what="Remove this credential"
    ),
    "reading": declared("credential", "drydock credentials show {name}", what="Credential of the account"),
    "listing": declared(
        "offers", "drydock offers --type {type} --credential {name} --all", what="This type",
        query="type={type}&credential={name}&all=true",
    ),
    "agent": declared("agent", "drydock agents show {id}", what="This agent"),
    "hardware.host": declared(
        "hardware_report", "drydock hardware show {host} --blueprint {name}", what="Hardware of this host"
    ),
    "hardware.scan": declared(
        "scan_hardware", "drydock hardware scan {host} --blueprint {name}", what="Scan this host again"
    ),
    "joincode.add": declared(
        "create_join_code", "drydock agents join BLUEPRINT --host HOST", what="Create a join code",
        blueprint="BLUEPRINT", host="HOST",
    ),
    "token.add": _row("Create a token", "drydock tokens create NAME --scope read"),
}  # fmt: skip
"""The equivalents of pages, by model and page."""

EQUIVALENTS = {**LISTS, **PAGES}
"""All equivalents. Actions add theirs when the admin of their model is created."""


def add(key: str, found: Equivalent) -> None:
    """Add the equivalent of an action. `key` consists of the names of the model and of the action."""
    EQUIVALENTS[key] = found


OF_LIST = {
    "lease": ("leases", "events"), "resource": ("resources",), "blueprint": ("blueprints", "blueprint.add", "kinds"),
    "event": ("events",), "authorization": ("authorizations", "authorization.add"), "quota": ("quotas", "quota.add"),
    "budget": ("budgets", "budget.add"), "usage": ("usage", "usage.records"),
    "credential": ("credentials", "credential.add"), "job": ("jobs",), "rememberederror": ("attention",),
    "run": ("attention",), "worker": ("workers", "doctor"), "installation": ("installation", "doctor"),
    "leasegroup": ("leases",), "share": ("leases", "resources"), "slotlock": ("leases",), "debt": ("resources",),
    "loginattempt": ("attention",), "formerconfig": ("blueprints",),
    "failure": ("attention", "resources"),
    "capacity": ("resources",), "part": ("resources",), "finding": ("resources",),
    "resourceidentity": ("resources",), "resourcecredential": ("resources",),
    "sync": ("blueprints",), "stray": ("orphans",),
    "listing": ("offers", "instance-types"), "reading": ("credentials", "locations"),
    "allowance": ("credentials", "offers"),
    "watch": ("leases",), "keptoutput": ("jobs",), "search": ("orphans",), "token": ("tokens", "token.add"),
    "agent": ("agents", "joincode.add"), "joincode": ("agents", "joincode.add"), "agentorder": ("agents",),
    "reportedhardware": ("hardware",), "leaseevidence": ("leases",), "erasurerecord": ("erasures",),
    "sensorreport": ("hosts",), "providerwatch": ("credentials",),
    "console": ("leases",), "consoleattachment": ("leases",), "consoleinput": ("leases",), "consoleoutput": ("leases",),
}  # fmt: skip

"""The names of the equivalents that the list of each model shows."""

OF_ROW = {
    "lease": ("lease", "lease.history", "lease.console", "lease.evidence", "lease.release"),
    "resource": ("resource", "resource.history", "resource.acts", "resource.sensors"),
    "blueprint": ("blueprint", "blueprint.change"), "job": ("job", "job.output"), "leasegroup": ("leasegroup",),
    "credential": ("credential", "credential.change", "credential.read"), "reading": ("reading", "reading.read"),
    "agent": ("agent",), "listing": ("listing", "offers"), "allowance": ("reading", "offers"),
}  # fmt: skip

"""The names of the equivalents that the page of a row shows, by model. Other models show those of their list."""

API = "api/v1/"


@dataclass(frozen=True, kw_only=True)
class SameElsewhere:
    """A command and a REST call with the same effect. Either may be empty."""

    what: str
    command: str = ""
    call: str = ""


def of_list(request: HttpRequest, model: str) -> list[SameElsewhere]:
    """Return the equivalents for the list of a model, which may belong to another app."""
    return [line_for(request, key, {}) for key in OF_LIST.get(model, ())]


def of_row(request: HttpRequest, row: Any) -> list[SameElsewhere]:
    """Return the equivalents for the page of a row, or those for its list if the page has none."""
    keys = OF_ROW.get(row._meta.model_name)
    return (
        of_list(request, row._meta.model_name) if keys is None else [_line_for_row(request, key, row) for key in keys]
    )


def of_action(request: HttpRequest, model: str, act: str, rows: list[Any]) -> list[SameElsewhere]:
    """Return the equivalents of an action (or of add or delete), one for each of the first rows."""
    key = f"{model}.{act}"
    if key not in EQUIVALENTS:
        return of_list(request, model)
    return [_line_for_row(request, key, row) for row in rows[:5]] if rows else [line_for(request, key, {})]


def of_history(request: HttpRequest, model: str, pk: str) -> list[SameElsewhere]:
    """Return the equivalents for the history of a row."""
    key = f"{model}.history"
    return [line_for(request, key, {"id": pk})] if key in EQUIVALENTS else [line_for(request, "events", {})]


def _line_for_row(request: HttpRequest, key: str, row: Any) -> SameElsewhere:
    return line_for(request, key, names_of(row))


def line_for(request: HttpRequest, key: str, names: Mapping[str, Any]) -> SameElsewhere:
    """Return the equivalent with this key, with the names filled in."""
    found = EQUIVALENTS[key]
    given = {name: shlex.quote(str(value)) for name, value in names.items()}
    return SameElsewhere(what=found.what, command=found.command.format(**given), call=_call(request, found, names))


def names_of(row: Any) -> dict[str, Any]:
    """Return the values that identify a row in commands and paths."""
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
    """Return whether the API has this path, without counting the view that answers unknown paths."""
    try:
        return bool(resolve(path).route.removeprefix("api/"))
    except Resolver404:
        return False
