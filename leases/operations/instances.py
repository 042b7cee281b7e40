"""Instances: leases on whole cloud machines, asked for and told of in a cloud's own words. There is one engine: an
instance's id is its lease's, and all else that can be done with a lease can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from drydock.core.errors import InvalidRequest, NotFound
from leases import lifecycle
from leases.client.values import InstanceInfo
from leases.given import checked
from leases.models import Lease, Resource
from leases.operations import asking, holding, instance_request, machines, reading
from leases.operations.callers import Caller, on_behalf, own_leases
from leases.operations.instance_request import InstanceRequest

INSTANCE = Q(type="host", exclusive=True, for_resource=None, for_lease=None, requirements__has_key="market")
"""Leases that are instances: on the whole of a machine of some market, which only clouds' have."""
_ACTS: dict[str, Callable[[Caller, int], Any]] = {
    "stop": lambda who, pk: machines.stop(who, pk),
    "start": lambda who, pk: machines.start(who, pk),
    "reboot": lambda who, pk: machines.reboot(who, pk),
}


@checked
def create(who: Caller, given: Mapping[str, Any] | InstanceRequest, *, owner: Any = None) -> InstanceInfo:
    """Ask for one; it is pending unless one that fits stands there idle. Raises InvalidRequest with the field, Conflict
    when the idempotency key stands for another request, NotAllowed."""
    asked = instance_request.read(given)
    return get(who, asking.request(who, asked.lease(), owner=owner))


@checked
def get(who: Caller, lease_id: int) -> InstanceInfo:
    """One instance. Raises NotFound, also for a lease that is none."""
    return info(_one(who, lease_id))


@checked
def list_(
    who: Caller, *, owner: Any = None, states: Collection[str] = (), location: str = "", instance_type: str = "",
    tag: str = "", name: str = "", all_: bool = False, limit: int = 200, before: int | None = None,
) -> list[InstanceInfo]:  # fmt: skip
    """Instances, newest first; those that are over only with `all_` or by their state. `tag` is `key` or `key=value`;
    `before`: only ids below it, to page on."""
    found = _instances(who)
    if owner is not None:
        found = found.filter(owner_id=on_behalf(who, owner).id)
    key, equal, value = tag.partition("=")
    tagged = Q() if not tag else Q(labels__contains={key: value}) if equal else Q(labels__has_key=key)
    chosen = {
        "name": name or None, "id__lt": before, "resource__attributes__region": location or None,
        "resource__attributes__instance_type": instance_type or None,
    }  # fmt: skip
    found = found.filter(tagged, _of(states, all_), **{at: one for at, one in chosen.items() if one is not None})
    return [info(row) for row in found.order_by("-id")[: max(1, min(limit, 1000))]]


def _of(states: Collection[str], all_: bool) -> Q:
    for word in states:
        if word not in lifecycle.STATES:
            raise InvalidRequest(
                f"There is no state {word!r}.", field="state", hint=f"There are: {', '.join(lifecycle.STATES)}."
            )
    wanted = states or (() if all_ else [word for word in lifecycle.STATES if word not in lifecycle.OVER])
    found = Q()
    for word in wanted:
        found |= lifecycle.standing(word)
    return found


@checked
def end(who: Caller, lease_id: int) -> InstanceInfo:
    """End it: its machine is cleaned and given up, or destroyed. One that has ended is fine. Raises NotFound."""
    _one(who, lease_id)
    holding.release(who, lease_id)
    return get(who, lease_id)


@checked
def change(who: Caller, lease_id: int, act: str) -> InstanceInfo:
    """`stop`, `start` or `reboot` it. Raises NotFound, InvalidRequest, NotSupported with the capability, and Conflict
    while it does not run or is busy with something else."""
    if act not in _ACTS:
        raise InvalidRequest(f"{act!r} cannot be done to an instance.", field="act", hint=f"{', '.join(_ACTS)}.")
    _one(who, lease_id)
    _ACTS[act](who, lease_id)
    return get(who, lease_id)


def _instances(who: Caller) -> QuerySet[Lease]:
    found = own_leases(who).filter(INSTANCE).select_related("owner", "resource__blueprint")
    return found.defer("secrets", "resource__secrets")


def _one(who: Caller, lease_id: int) -> Lease:
    found = _instances(who).filter(pk=lease_id).first()
    if found is None:
        raise NotFound(f"No instance {lease_id}, or it is not yours.", field="instance")
    return found


def info(row: Lease) -> InstanceInfo:
    """A lease with its owner, resource and blueprint at hand."""
    there = row.resource or Resource()
    said, facts = there.attributes, there.facts
    seen = facts.get("seen") or {}
    state = lifecycle.state_of(row.state, there.state if row.resource else "", there.power, there.power_wanted)
    return InstanceInfo(
        id=row.pk, name=row.name, owner="" if row.owner is None else row.owner.get_username(), state=state,
        message=reading.said(row).message, kind=there.blueprint.kind if row.resource else "",
        blueprint=there.blueprint.name if row.resource else "", location=_text(said, "region"),
        zone=_text(said, "zone"), instance_type=_text(said, "instance_type"), market=_text(said, "market"),
        price=there.price, image=_text(said, "image"), provider_id=_text(facts, "instance_id"),
        public_address=_text(seen, "public_address"), private_address=_text(seen, "private_address"),
        **_access(row, facts), tags=row.labels, created_at=row.created_at, active_at=row.active_at,
        ended_at=row.ended_at, until=row.until, resource=row.resource_id, replaced_by=row.replaced_by_id,
    )  # fmt: skip


def _text(facts: Mapping[str, Any], name: str) -> str:
    return str(facts.get(name) or "")


def _access(row: Lease, facts: Mapping[str, Any]) -> dict[str, Any]:
    """How its account is reached, while there is one."""
    active = row.state == "active"
    return {
        "ssh_user": _text(row.facts, "user") or _text(facts, "user") if active else "",
        "ssh_host": _text(facts, "address") if active else "",
        "ssh_port": facts.get("port") if active else None,
        "ssh_host_keys": tuple(facts.get("host_keys") or ()) if active else (),
    }
