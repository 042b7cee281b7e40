"""Instances: leases on whole cloud machines, asked for and told of in a cloud's own words. There is one engine: an
instance's id is its lease's, and all else that can be done with a lease can be done with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from drydock.core.errors import InvalidRequest, NotFound
from leases import lifecycle
from leases.client.values import InstanceInfo
from leases.given import checked
from leases.models import Failure, Lease, Resource
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
    return get(who, asking.request(who, asked.lease(), owner=owner, endless=True))


@checked
def get(who: Caller, lease_id: int) -> InstanceInfo:
    """One instance. Raises NotFound, also for a lease that is none."""
    found = _one(who, lease_id)
    reading.with_waits([found], who)
    return info(found)


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
    found = _of(found, states, all_).filter(tagged, **{at: one for at, one in chosen.items() if one is not None})
    rows = list(found.order_by("-id")[: max(1, min(limit, 1000))])
    reading.with_waits(rows, who)
    return [info(row) for row in rows]


def _of(found: QuerySet[Any], states: Collection[str], all_: bool) -> QuerySet[Any]:
    for word in states:
        if word not in lifecycle.STATES:
            raise InvalidRequest(
                f"There is no state {word!r}.", field="state", hint=f"There are: {', '.join(lifecycle.STATES)}."
            )
    if not states and all_:
        return found
    wanted = states or [word for word in lifecycle.STATES if word not in lifecycle.OVER]
    narrowed = found if set(wanted) & set(lifecycle.OVER) else found.filter(lifecycle.not_over())
    return narrowed.filter(instance_state__in=wanted)


@checked
def end(who: Caller, lease_id: int) -> InstanceInfo:
    """End it: its machine is kept for the next lease where its blueprint allows (`released`), else destroyed. One that
    has ended is fine. Raises NotFound."""
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


def _instances(who: Caller) -> QuerySet[Any]:
    found = own_leases(who).filter(INSTANCE).select_related("owner", "resource__blueprint", "resource__failure")
    return lifecycle.with_state(found).defer("secrets", "resource__secrets")


def _one(who: Caller, lease_id: int) -> Any:
    found = _instances(who).filter(pk=lease_id).first()
    if found is None:
        raise NotFound(f"No instance {lease_id}, or it is not yours.", field="instance")
    return found


def info(row: Any) -> InstanceInfo:
    """A lease of `_instances` as an instance."""
    there = row.resource or Resource()
    said, facts = there.attributes, there.facts
    seen = facts.get("seen") or {}
    state, failure = row.instance_state, _failure(row)
    return InstanceInfo(
        id=row.pk, name=row.name, owner="" if row.owner is None else row.owner.get_username(), state=state,
        message=_message(row, failure), kind=there.blueprint.kind if row.resource else "",
        blueprint=there.blueprint.name if row.resource else "", location=_text(said, "region"),
        zone=_text(said, "zone"), instance_type=_text(said, "instance_type"), market=_text(said, "market"),
        price=there.price, image=_text(said, "image"), provider_id=_text(facts, "instance_id"),
        public_address=_text(seen, "public_address"), private_address=_text(seen, "private_address"),
        **_access(row, facts), tags=row.labels, created_at=row.created_at, active_at=row.active_at,
        ended_at=row.ended_at, until=row.until, resource=row.resource_id, replaced_by=row.replaced_by_id,
        hourly_cost=0.0 if state in lifecycle.OVER or row.resource is None else there.price,
        kept_until=_kept_until(there) if state == lifecycle.RELEASED else None, failure=reading.failure(failure),
    )  # fmt: skip


def _failure(row: Any) -> Failure | None:
    """The act on its machine that failed last, unless it was another lease's."""
    found: Failure | None = getattr(row.resource, "failure", None)
    theirs = found is not None and row.instance_state not in lifecycle.OVER and found.lease_id in (None, row.pk)
    return found if theirs else None


def _kept_until(there: Resource) -> dt.datetime | None:
    """When an idle machine is destroyed; None: its blueprint says nothing of it."""
    timeout = there.blueprint.idle_timeout
    ends = [there.dies_at, there.idle_since + timeout if there.idle_since and timeout is not None else None]
    return min((one for one in ends if one is not None), default=None)


def _message(row: Any, failure: Failure | None) -> str:
    """Its state in a sentence, with the provider's words where something fails."""
    there, said = row.resource, reading.said(row).message
    if row.instance_state == lifecycle.RELEASED:
        until = _kept_until(there)
        said = f"Released; its machine is kept {f'until {until:%Y-%m-%d %H:%M} UTC' if until else 'with no end'}."
    elif row.instance_state == lifecycle.REASSIGNED:
        said = "Its machine serves another lease."
    elif row.instance_state == lifecycle.TERMINATING and row.state in holding.OVER:
        said = f"Its machine is being destroyed. {said or there.message}".strip()
    if failure is None:
        return said
    times = "" if failure.attempts == 1 else f" {failure.attempts} times"
    return f"{said} {failure.act} failed{times}: {failure.message}".strip()


def of_lease(row: Lease) -> InstanceInfo | None:
    """The instance that a lease is; None for any other lease."""
    host = row.type == "host" and row.exclusive and "market" in row.requirements
    if not host or row.for_resource_id is not None or row.for_lease_id is not None:
        return None
    found = Lease.objects.filter(pk=row.pk).select_related("owner", "resource__blueprint", "resource__failure")
    return info(lifecycle.with_state(found).defer("secrets", "resource__secrets").get())


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
