"""Maps each declared operation to the function that implements it, for the REST API and the in-process client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drydock.core.errors import InvalidRequest
from drydock_client.operations import Operation
from drydock_client.values import BlueprintInfo, LeaseInfo, ResourceInfo, UserInfo
from leases.engine.core.database import patient
from leases.operations import (
    attention,
    blueprints,
    costs,
    credentials,
    fleet,
    installation,
    instances,
    interfaces,
    jobs,
    leases,
    lifetimes,
    offers,
    permissions,
    resources,
    users,
)
from leases.operations.callers import Caller

Function = Callable[..., Any]
Value = TypeVar("Value")
_BUILT_IN = frozenset({"all", "type"})
"""Parameters whose names end in `_` in the functions, because the plain names are built-ins."""


def carry_out(who: Caller, operation: Operation, arguments: Mapping[str, Any]) -> Any:
    """Call the function that implements an operation.

    Passes path variables positionally and everything else by keyword.
    """
    named = {f"{n}_" if n in _BUILT_IN else n: v for n, v in arguments.items() if n not in operation.variables}
    return function_of(operation)(who, *(arguments[name] for name in operation.variables), **named)


def function_of(operation: Operation) -> Function:
    """Return the function for an operation: from the table, or else the one with its name in its subject's module."""
    found: Function = FUNCTIONS.get(operation.name) or getattr(_SUBJECTS[operation.subject], operation.name)
    return found


def _repeated(function: Function) -> Function:
    """Wrap a function so that it is called again while the database does not answer."""
    return lambda *args, **given: patient(function, *args, **given)


def _then_lease(function: Function) -> Callable[..., LeaseInfo]:
    """Wrap a function so that it returns the lease as it is after the call."""

    def call(who: Caller, id: int, **given: Any) -> LeaseInfo:
        function(who, id, **given)
        return patient(leases.get, who, id)

    return call


def _change_resource(who: Caller, id: int, act: str, **given: Any) -> ResourceInfo:
    acts: dict[str, Callable[..., ResourceInfo]] = {
        "drain": resources.drain, "quarantine": resources.quarantine, "unquarantine": resources.unquarantine,
        "retire": resources.retire, "power": resources.power, "check": resources.check,
        "force_destroy": resources.force_destroy,
    }  # fmt: skip
    if act == "undrain":
        return resources.drain(who, id, drained=False)
    return _known(acts, act, "a resource")(who, id, **given)


def _switch_blueprint(who: Caller, name: str, act: str) -> BlueprintInfo:
    if act in ("drain", "undrain"):
        return blueprints.drain(who, name, drained=act == "drain")
    acts: dict[str, Callable[..., BlueprintInfo]] = {
        "check": blueprints.check, "enable": blueprints.enable, "disable": blueprints.disable,
    }  # fmt: skip
    return _known(acts, act, "a blueprint")(who, name)


def _switch_user(who: Caller, user: str, act: str) -> UserInfo:
    return _known({"enable": users.enable, "disable": users.disable}, act, "a user")(who, user)


def _known(acts: Mapping[str, Callable[..., Value]], act: str, what: str) -> Callable[..., Value]:
    if act not in acts:
        raise InvalidRequest(f"{act!r} is not an action on {what}. Choose one of: {', '.join(acts)}.", field="act")
    return acts[act]


FUNCTIONS: dict[str, Function] = {
    "access": interfaces.access,
    "release": _then_lease(_repeated(leases.release)),
    "extend": _then_lease(_repeated(lifetimes.extend)),
    "heartbeat": _repeated(leases.heartbeat),
    "hold": _then_lease(leases.hold),
    "unhold": _then_lease(leases.unhold),
    "retry": _then_lease(leases.retry),
    "job": _repeated(jobs.get),
    "jobs": lambda who, *, lease=None: jobs.list_(who, lease_id=lease),
    "cancel_job": jobs.cancel,
    "list_files": interfaces.list_files,
    "resource": resources.get,
    "change_resource": _change_resource,
    "register": lambda who, blueprint, registration: resources.register(who, blueprint, registration),
    "change_registration": lambda who, id, changed: resources.change_registration(who, id, changed),
    "reclaim": installation.reclaim,
    "sweep": installation.sweep_now,
    "clear_errors": installation.clear_errors,
    "attention": attention.needed,
    "blueprints": blueprints.list_,
    "blueprint": blueprints.get,
    "switch_blueprint": _switch_blueprint,
    "remove_blueprint": blueprints.remove,
    "kinds": lambda who, *, type_="": blueprints.kinds(type_=type_),
    "kind": lambda who, name: blueprints.schema(name),
    "ask_authorization": lambda who, blueprint, message: permissions.ask(who, blueprint, message=message),
    "decide_authorization": lambda who, blueprint, allow, **given: (
        permissions.authorize if allow else permissions.decline
    )(who, blueprint, **given),
    "credentials": credentials.list_,
    "credential": credentials.get,
    "read_credential": credentials.read,
    "add_credential": lambda who, name, secrets, note: credentials.add(who, name, secrets, remark=note),
    "change_credential": lambda who, name, secrets, note: credentials.change(who, name, secrets=secrets, remark=note),
    "remove_credential": credentials.remove,
    "users": users.list_,
    "user": users.get,
    "add_user": users.add,
    "set_user_password": users.set_password,
    "switch_user": _switch_user,
    "change_user_groups": users.change_groups,
    "locations": offers.places,
    "budgets": costs.list_budgets,
    "set_budget": costs.set_budget,
    "remove_budget": costs.remove_budget,
    "end_instance": instances.end,
    "change_instance": instances.change,
    "fleet": lambda who, *, capabilities: fleet.backends(who, able=capabilities),
    "orphans": fleet.list_orphans,
    "settle_orphan": fleet.settle_orphan,
}
"""The functions of operations whose function has another name, module or signature."""
_SUBJECTS = {"leases": leases, "permissions": permissions, "resources": resources, "blueprints": blueprints}
