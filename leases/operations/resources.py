"""What operators do with resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import Q

from blueprints import registry
from blueprints.contract import Checks, Powers
from drydock.core.errors import Conflict, InvalidRequest, NotFound, NotSupported
from leases import hints
from leases.client.values import ResourceInfo
from leases.engine.core import specs
from leases.engine.core.database import rows, run, short
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_resource, record_event
from leases.engine.resources import cleanup, retirement
from leases.engine.resources import maintenance as switching
from leases.given import checked
from leases.models import Resource
from leases.operations import reading
from leases.operations.callers import Caller, operator_only, own_leases
from leases.reasons import Reason
from leases.states import VANISHED, ResourceState

GONE = Q(state="destroyed") | ~Q(gone_at=None)


def visible(who: Caller) -> Any:
    """Operators see all resources, owners those on which they have a lease that is not over."""
    if who.operator:
        return Resource.objects.all()
    return Resource.objects.filter(leases__owner_id=who.id, leases__state__in=("acquired", "active", "released"))


@checked
def list_(
    who: Caller, *, type_: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False,
    limit: int = 500, after: int = 0,
) -> list[ResourceInfo]:  # fmt: skip
    """Resources by id; those that are gone only when asked for. `after`: only ids above it, to page on."""
    if state and state not in tuple(ResourceState):
        raise InvalidRequest(
            f"There is no state {state!r}.", field="state", hint=f"There are: {', '.join(ResourceState)}."
        )
    found = (visible(who) if gone else visible(who).exclude(GONE)).filter(id__gt=after)
    chosen = {"type": type_, "blueprint__name": blueprint, "state": state, "name": name}
    found = found.filter(**{column: value for column, value in chosen.items() if value})
    return _told(who, reading.resources(found.distinct().order_by("id")[:limit]))


@checked
def get(who: Caller, resource_id: int) -> ResourceInfo:
    """One resource. Raises NotFound."""
    found = _told(who, reading.resources(visible(who).filter(pk=resource_id).distinct()))
    if not found:
        raise NotFound(f"No resource {resource_id}, or you have no lease on it.", field="resource")
    return found[0]


def _told(who: Caller, found: list[ResourceInfo]) -> list[ResourceInfo]:
    """The resources as this caller may know them: an owner learns nothing of others' leases on them."""
    if who.operator:
        return found
    named = {pk for info in found for pk in (*info.leases, info.reserved_for) if pk is not None}
    own = set(own_leases(who).filter(pk__in=named).values_list("pk", flat=True))
    return [
        replace(
            info,
            leases=tuple(pk for pk in info.leases if pk in own),
            reserved_for=info.reserved_for if info.reserved_for in own else None,
            # The homes that were put aside are named after the leases that left them.
            facts={name: value for name, value in info.facts.items() if name != "aside"},
        )
        for info in found
    ]


def _resource(who: Caller, resource_id: int, what: str) -> Resource:
    operator_only(who, what)
    found = Resource.objects.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"No resource {resource_id}.", field="resource")
    return found


def there(who: Caller, resource_id: int, what: str) -> Resource:
    found = _resource(who, resource_id, what)
    if found.state not in ("pending", "active"):
        raise Conflict(f"Resource {resource_id} is {found.state}.")
    return found


@checked
def drain(who: Caller, resource_id: int, *, drained: bool = True, reason: str = "") -> ResourceInfo:
    """Give it to nobody any more, and give it up once idle; or (`drained=False`) serve again, and wake who waits."""
    resource = there(who, resource_id, "drain resources")
    if Resource.objects.filter(pk=resource_id, drained=not drained).update(drained=drained):
        if not resource.quarantined:
            Resource.objects.filter(pk=resource_id).update(note=reason[:2000] if drained else "")
        word = "drained" if drained else "undrained"
        record_event(f"resource.{word}", reason, actor=who.actor, resource_id=resource_id)
        hints.after_commit("sweep" if drained else "serve", *([] if drained else [resource.type]))
    return get(who, resource_id)


@checked
def quarantine(who: Caller, resource_id: int, *, message: str) -> ResourceInfo:
    """Take it out of service as it is, with a note; its leases stay. Raises InvalidRequest without a note."""
    if not message.strip():
        raise InvalidRequest("A quarantine needs a note that says why.", field="note")
    there(who, resource_id, "quarantine resources")
    Resource.objects.filter(pk=resource_id).update(quarantined=True, note=message[:2000])
    record_event("resource.quarantined", message, actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def unquarantine(who: Caller, resource_id: int) -> ResourceInfo:
    """Put it back into service; who waits for room is woken. What lost leases left on it is cleaned first: until
    then it stays in maintenance, and its message says so."""
    resource = there(who, resource_id, "end a quarantine")
    if Resource.objects.filter(pk=resource_id, quarantined=True).update(quarantined=False, note="", check_failures=0):
        record_event("resource.unquarantined", "", actor=who.actor, resource_id=resource_id)
        hints.after_commit("serve", resource.type)
    cleanup.try_now(resource_id)
    return get(who, resource_id)


_CONFIRMED = "It disappeared with everything else of its account, and an operator gave it up."


@checked
def retire(who: Caller, resource_id: int) -> ResourceInfo:
    """Give up a resource that nobody holds: it is destroyed, or handed back. Raises Conflict while it is held.

    One that disappeared with everything else of its account is removed though it is held: its leases are broken, and
    its provider is asked whether it and what belongs to it are gone.
    """
    resource = there(who, resource_id, "retire resources")
    if resource.observed == VANISHED and retirement.lose(
        resource_id, reason=Reason.LOST, message=_CONFIRMED, actor=who.actor
    ):
        return get(who, resource_id)
    if not retirement.retire_idle(resource_id, reason=Reason.OPERATOR, message="Retired.", actor=who.actor):
        raise Conflict(
            f"Resource {resource_id} is held or busy.", hint="Drain it, and it goes when its last lease ends."
        )
    return get(who, resource_id)


@checked
def force_destroy(who: Caller, resource_id: int, *, reason: str) -> ResourceInfo:
    """Vouch that a resource is gone: its leases are broken and its row is closed, whatever its provider says.

    For what cannot be destroyed any more. Raises InvalidRequest without a reason, NotFound, NotAllowed.
    """
    if not reason.strip():
        raise InvalidRequest("Say why: it may leave something behind at the provider.", field="reason")
    resource = _resource(who, resource_id, "force a destruction")
    if resource.gone_at is None:
        retirement.lose(resource_id, reason=Reason.FORCED, message=reason, actor=who.actor)
        _close(resource_id, reason, who.actor)
    return get(who, resource_id)


@short
def _close(resource_id: int, reason: str, actor: str) -> None:
    lock_resource(resource_id)
    run("DELETE FROM leases_run WHERE resource_id = %s", (resource_id,))
    record_event("resource.forced", reason, actor=actor, resource_id=resource_id, reason=Reason.FORCED)
    retirement.gone(resource_id, forced=reason, actor=actor)


@checked
def power(who: Caller, resource_id: int, wanted: str) -> ResourceInfo:
    """Switch it `on` or `off`, and keep it so, or `cycle` it once. Raises InvalidRequest, NotSupported, and Conflict
    for a cycle while something runs."""
    if wanted not in ("on", "off", "cycle"):
        raise InvalidRequest("Power is switched on, off, or cycled.", field="power")
    resource = there(who, resource_id, "switch power")
    _supports(resource, Powers, "switched on and off")
    if wanted == "cycle":
        _begin(resource_id, "power", {"power": wanted})
    switching.want_power(resource_id, "off" if wanted == "off" else "on")
    record_event("resource.power", f"Power {wanted} asked for.", actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def check(who: Caller, resource_id: int) -> ResourceInfo:
    """Begin a health check now. Raises NotSupported, and Conflict while something else runs."""
    resource = there(who, resource_id, "check resources")
    _supports(resource, Checks, "checked")
    _begin(resource_id, "check", {})
    record_event("resource.check", "Check asked for.", actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


def _supports(resource: Resource, base: type, what: str) -> None:
    kind = registry.kind(resource.blueprint.kind)
    lacking = kind.lacking(specs.config(kind.name, resource.blueprint.config))
    if not isinstance(kind, base) or base in lacking:
        raise NotSupported(f"A resource of kind {resource.blueprint.kind!r} cannot be {what}.")


@short
def _begin(resource_id: int, phase: str, wanted: dict[str, Any]) -> None:
    lock_resource(resource_id)
    if start(resource_id=resource_id, phase=phase, wanted=wanted) is None:
        going = rows("SELECT phase FROM leases_run WHERE resource_id = %s AND lease_id IS NULL", (resource_id,))
        raise Conflict(f"Resource {resource_id} is busy with {going[0][0] if going else 'something else'}.")
