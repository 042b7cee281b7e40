"""Maps each declared operation to the function that implements it, for the REST API and the in-process client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from drydock.core.errors import InvalidRequest
from drydock_client.operations import Operation
from drydock_client.values import (
    AuthorizationInfo,
    BlueprintInfo,
    EventInfo,
    JobInfo,
    LeaseInfo,
    ResourceInfo,
    UserInfo,
)
from leases import agents, attestation, consoles, erasures, sensors
from leases.engine.core.database import patient
from leases.operations import (
    attention,
    blueprints,
    costs,
    credentials,
    events,
    fleet,
    installation,
    instances,
    interfaces,
    jobs,
    leases,
    lifetimes,
    machines,
    offers,
    permissions,
    resources,
    users,
)
from leases.operations.callers import Caller
from leases.operations.dpus import chains, networks, services, volumes, vpcs
from leases.operations.dpus import credentials as dpu_credentials
from leases.states import UNFINISHED

Function = Callable[..., Any]
Value = TypeVar("Value")
_BUILT_IN = frozenset({"all", "type"})
"""Parameters whose names end in `_` in the functions, because the names without it are those of built-ins."""


def carry_out(who: Caller, operation: Operation, arguments: Mapping[str, Any]) -> Any:
    """Call the function that implements an operation, and return its result.

    Path variables are passed by position and all other arguments by keyword.
    """
    named = {f"{n}_" if n in _BUILT_IN else n: v for n, v in arguments.items() if n not in operation.variables}
    return function_of(operation)(who, *(arguments[name] for name in operation.variables), **named)


def function_of(operation: Operation) -> Function:
    """Return the function of an operation, from `FUNCTIONS` or by its name from the module of its subject."""
    found: Function = FUNCTIONS.get(operation.name) or getattr(_SUBJECTS[operation.subject], operation.name)
    return found


_SUBJECTS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        agents, blueprints, costs, credentials, events, fleet, installation, instances, interfaces, jobs, leases,
        machines, offers, permissions, resources, users,
    )
}  # fmt: skip


def _repeated(function: Function) -> Function:
    """Wrap a function so that it is called again while the database is not reachable."""
    return lambda *args, **given: patient(function, *args, **given)


def _then_lease(function: Function) -> Callable[..., LeaseInfo]:
    """Wrap a function so that it returns the lease in its state after the call."""

    def call(who: Caller, id: int, **given: Any) -> LeaseInfo:
        function(who, id, **given)
        return patient(leases.get, who, id)

    return call


def _change_resource(who: Caller, id: int, act: str, **given: Any) -> ResourceInfo:
    acts: dict[str, Callable[..., ResourceInfo]] = {
        "drain": resources.drain, "quarantine": resources.quarantine, "unquarantine": resources.unquarantine,
        "no_reboots": resources.forbid_reboots, "allow_reboots": resources.allow_reboots,
        "retire": resources.retire, "power": resources.power, "check": resources.check,
        "force_destroy": resources.force_destroy, "update": resources.update,
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


def _change_authorization(who: Caller, id: int, act: str, *, message: str = "") -> AuthorizationInfo:
    allow = _known({"approve": lambda: True, "decline": lambda: False}, act, "an authorization")()
    return permissions.settle(who, id, allow=allow, message=message)


def _known(acts: Mapping[str, Callable[..., Value]], act: str, what: str) -> Callable[..., Value]:
    if act not in acts:
        raise InvalidRequest(f"{act!r} is not an action on {what}. Choose one of: {', '.join(acts)}.", field="act")
    return acts[act]


class Part(list[Any]):
    """A page of a list that is not paged by id. `next` is the cursor of the next page, or None on the last page."""

    def __init__(self, found: Iterable[Any], next: str | None) -> None:
        super().__init__(found)
        self.next = next


def _offers(who: Caller, wanted: Mapping[str, Any], **given: Any) -> Part:
    found = offers.search(who, wanted, **given)
    return Part(found.offers, found.next)


def _leases(who: Caller, *, states: Collection[str] | None = None, **given: Any) -> list[LeaseInfo]:
    return leases.list_(who, states=UNFINISHED if states is None else states, **given)


def _events_of_lease(who: Caller, id: int, **given: Any) -> list[EventInfo]:
    leases.get(who, id)
    return events.list_(who, lease_id=id, **given)


def _jobs_of_lease(who: Caller, id: int) -> list[JobInfo]:
    leases.get(who, id)
    return jobs.list_(who, lease_id=id)


def _request(who: Caller, request: Mapping[str, Any], owner: str | None) -> LeaseInfo:
    return patient(leases.get, who, leases.request_patiently(who, request, owner=owner))


FUNCTIONS: dict[str, Function] = {
    "request": _request,
    "request_group": lambda who, requests, key, **given: [
        patient(leases.get, who, pk)
        for pk in leases.request_group_patiently(who, requests, idempotency_key=key, **given)
    ],
    "explain": lambda who, request, owner: leases.explain(who, request, owner=owner),
    "explain_group": lambda who, requests, **given: leases.explain_group(who, requests, **given),
    "lease": _repeated(leases.get),
    "leases": _leases,
    "release": _then_lease(_repeated(leases.release)),
    "extend": _then_lease(_repeated(lifetimes.extend)),
    "heartbeat": _repeated(leases.heartbeat),
    "hold": _then_lease(leases.hold),
    "unhold": _then_lease(leases.unhold),
    "retry": _then_lease(leases.retry),
    "lease_machine": machines.get,
    "resource_machine": machines.get_resource,
    "change_lease_machine": machines.act_on_lease,
    "change_resource_machine": machines.act_on_resource,
    "lease_console": consoles.shown,
    "attach_console": consoles.attach,
    "read_console": consoles.read,
    "write_console": consoles.write,
    "detach_console": consoles.detach,
    "resource_console": machines.console_of_resource,
    "attest": attestation.attest,
    "evidence": attestation.evidence_of,
    "acts": machines.acts,
    "start_act": machines.start_act,
    "cancel_act": machines.cancel_act,
    "lease_events": _events_of_lease,
    "events": lambda who, *, lease, resource, **given: events.list_(who, lease_id=lease, resource_id=resource, **given),
    "server_status": lambda who, id: interfaces.server_act(who, id, "status"),
    "change_server": lambda who, id, act: interfaces.server_act(who, id, act),
    "dpu_services": services.list_,
    "dpu_service": services.show,
    "apply_dpu_service": services.apply,
    "remove_dpu_service": services.remove,
    "dpu_chains": chains.list_,
    "dpu_chain": chains.show,
    "connect_dpu_chain": chains.connect,
    "remove_dpu_chain": chains.remove,
    "dpu_networks": networks.list_,
    "dpu_network": networks.show,
    "create_dpu_network": networks.create,
    "remove_dpu_network": networks.remove,
    "dpu_volumes": volumes.list_,
    "dpu_volume": volumes.show,
    "create_dpu_volume": volumes.create,
    "remove_dpu_volume": volumes.remove,
    "dpu_vpcs": vpcs.list_,
    "dpu_vpc": vpcs.show,
    "create_dpu_vpc": vpcs.create,
    "remove_dpu_vpc": vpcs.remove,
    "dpu_credentials": dpu_credentials.list_,
    "request_dpu_credential": dpu_credentials.request,
    "read_dpu_credential": dpu_credentials.show,
    "remove_dpu_credential": dpu_credentials.remove,
    "start_job": jobs.start,
    "job": _repeated(jobs.get),
    "jobs": lambda who, *, lease=None: jobs.list_(who, lease_id=lease),
    "lease_jobs": _jobs_of_lease,
    "job_output": _repeated(jobs.output),
    "cancel_job": jobs.cancel,
    "erasures": erasures.erasures,
    "sensors": sensors.sensors,
    "resource": resources.get,
    "resources": resources.list_,
    "host_keys": resources.scan_host_keys,
    "change_resource": _change_resource,
    "register": lambda who, blueprint, registration: resources.register(who, blueprint, registration),
    "check_registration": lambda who, blueprint, registration: resources.check_registration(
        who, blueprint, registration
    ),
    "change_registration": lambda who, id, changed: resources.change_registration(who, id, changed),
    "attention": attention.needed,
    "sweep": installation.sweep_now,
    "resolve_lease": lambda who, id, **answer: installation.resolve(who, lease_id=id, **answer),
    "resolve_resource": lambda who, id, **answer: installation.resolve(who, resource_id=id, **answer),
    "workers": installation.workers_alive,
    "blueprints": blueprints.list_,
    "blueprint": blueprints.get,
    "add_blueprint": blueprints.add,
    "change_blueprint": lambda who, name, change: blueprints.change(who, name, change),
    "switch_blueprint": _switch_blueprint,
    "remove_blueprint": blueprints.remove,
    "kinds": lambda who, *, type_="": blueprints.kinds(type_=type_),
    "kind": lambda who, name: blueprints.schema(name),
    "ask_authorization": lambda who, blueprint, message: permissions.ask(who, blueprint, message=message),
    "change_authorization": _change_authorization,
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
    "offers": _offers,
    "instance_types": lambda who, wanted, **given: offers.types(who, wanted, **given),
    "locations": offers.places,
    "usage": lambda who, wanted, *, by: costs.usage_report(who, wanted, by=by),
    "usage_records": _repeated(lambda who, wanted, **given: costs.usage_records(who, wanted, **given)),
    "budgets": costs.list_budgets,
    "create_instance": lambda who, wanted, owner: instances.create(who, wanted, owner=owner),
    "instances": instances.list_,
    "instance": instances.get,
    "end_instance": instances.end,
    "change_instance": instances.change,
    "fleet": lambda who, *, capabilities: fleet.backends(who, able=capabilities),
    "orphans": fleet.list_orphans,
}
"""Functions whose name or signature differs from that of their operation."""
