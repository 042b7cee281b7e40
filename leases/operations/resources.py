"""What operators do with resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from pydantic import ValidationError

from blueprints import registry
from blueprints.contract import Checks, Powers, Registers
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, InvalidRequest, NotFound, NotSupported
from leases import hints
from leases.client.values import ResourceInfo
from leases.engine import allocation, debts, retiring, views
from leases.engine import power as switching
from leases.engine.runs import start
from leases.engine.transaction import rows, run, short
from leases.engine.transitions import lock_resource, note
from leases.given import checked
from leases.models import Resource
from leases.operations import reading
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason
from leases.requests import invalid
from leases.states import ResourceState

GONE = Q(state="destroyed") | ~Q(gone_at=None)


def visible(who: Caller) -> Any:
    """Operators see all resources, owners those on which they have a lease that is not over."""
    if who.operator:
        return Resource.objects.all()
    return Resource.objects.filter(leases__owner_id=who.id, leases__state__in=("acquired", "active", "released"))


@checked
def list_(
    who: Caller, *, type_: str = "", blueprint: str = "", state: str = "", gone: bool = False, limit: int = 500,
    after: int = 0,
) -> list[ResourceInfo]:  # fmt: skip
    """Resources by id; those that are gone only when asked for. `after`: only ids above it, to page on."""
    if state and state not in tuple(ResourceState):
        raise InvalidRequest(
            f"There is no state {state!r}.", field="state", hint=f"There are: {', '.join(ResourceState)}."
        )
    found = (visible(who) if gone else visible(who).exclude(GONE)).filter(id__gt=after)
    chosen = {"type": type_, "blueprint__name": blueprint, "state": state}
    found = found.filter(**{column: value for column, value in chosen.items() if value})
    return reading.resources(found.distinct().order_by("id")[:limit])


@checked
def get(who: Caller, resource_id: int) -> ResourceInfo:
    """One resource. Raises NotFound."""
    found = reading.resources(visible(who).filter(pk=resource_id).distinct())
    if not found:
        raise NotFound(f"No resource {resource_id}, or you have no lease on it.", field="resource")
    return found[0]


def _resource(who: Caller, resource_id: int, what: str) -> Resource:
    operator_only(who, what)
    found = Resource.objects.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"No resource {resource_id}.", field="resource")
    return found


def _there(who: Caller, resource_id: int, what: str) -> Resource:
    found = _resource(who, resource_id, what)
    if found.state not in ("pending", "active"):
        raise Conflict(f"Resource {resource_id} is {found.state}.")
    return found


@checked
def drain(who: Caller, resource_id: int, *, drained: bool = True, reason: str = "") -> ResourceInfo:
    """Give it to nobody any more, and give it up once idle; or (`drained=False`) serve again, and wake who waits."""
    resource = _there(who, resource_id, "drain resources")
    if Resource.objects.filter(pk=resource_id, drained=not drained).update(drained=drained):
        word = "drained" if drained else "undrained"
        note(f"resource.{word}", reason, actor=who.actor, resource_id=resource_id)
        hints.after_commit("sweep" if drained else "serve", *([] if drained else [resource.type]))
    return get(who, resource_id)


@checked
def quarantine(who: Caller, resource_id: int, *, message: str) -> ResourceInfo:
    """Take it out of service as it is, with a note; its leases stay. Raises InvalidRequest without a note."""
    if not message.strip():
        raise InvalidRequest("A quarantine needs a note that says why.", field="note")
    _there(who, resource_id, "quarantine resources")
    Resource.objects.filter(pk=resource_id).update(quarantined=True, note=message[:2000])
    note("resource.quarantined", message, actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def unquarantine(who: Caller, resource_id: int) -> ResourceInfo:
    """Put it back into service; who waits for room is woken. What lost leases left on it is cleaned first: until
    then it stays in maintenance, and its message says so."""
    resource = _there(who, resource_id, "end a quarantine")
    if Resource.objects.filter(pk=resource_id, quarantined=True).update(quarantined=False, note="", check_failures=0):
        note("resource.unquarantined", "", actor=who.actor, resource_id=resource_id)
        hints.after_commit("serve", resource.type)
    debts.try_now(resource_id)
    return get(who, resource_id)


@checked
def retire(who: Caller, resource_id: int) -> ResourceInfo:
    """Give up a resource that nobody holds: it is destroyed, or handed back. Raises Conflict while it is held."""
    _there(who, resource_id, "retire resources")
    if not retiring.retire_idle(resource_id, reason=Reason.OPERATOR, message="Retired.", actor=who.actor):
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
        retiring.lose(resource_id, reason=Reason.FORCED, message=reason, actor=who.actor)
        _close(resource_id, reason, who.actor)
    return get(who, resource_id)


@short
def _close(resource_id: int, reason: str, actor: str) -> None:
    lock_resource(resource_id)
    run("DELETE FROM leases_run WHERE resource_id = %s", (resource_id,))
    note("resource.forced", reason, actor=actor, resource_id=resource_id, reason=Reason.FORCED)
    retiring.gone(resource_id, forced=reason, actor=actor)


@checked
def power(who: Caller, resource_id: int, wanted: str) -> ResourceInfo:
    """Switch it `on` or `off`, and keep it so, or `cycle` it once. Raises InvalidRequest, NotSupported, and Conflict
    for a cycle while something runs."""
    if wanted not in ("on", "off", "cycle"):
        raise InvalidRequest("Power is switched on, off, or cycled.", field="power")
    resource = _there(who, resource_id, "switch power")
    _supports(resource, Powers, "switched on and off")
    if wanted == "cycle":
        _begin(resource_id, "power", {"power": wanted})
    switching.want(resource_id, "off" if wanted == "off" else "on")
    note("resource.power", f"Power {wanted} asked for.", actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def check(who: Caller, resource_id: int) -> ResourceInfo:
    """Begin a health check now. Raises NotSupported, and Conflict while something else runs."""
    resource = _there(who, resource_id, "check resources")
    _supports(resource, Checks, "checked")
    _begin(resource_id, "check", {})
    note("resource.check", "Check asked for.", actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


def _supports(resource: Resource, base: type, what: str) -> None:
    kind = registry.kind(resource.blueprint.kind)
    lacking = kind.lacking(views.config(kind.name, resource.blueprint.config))
    if not isinstance(kind, base) or base in lacking:
        raise NotSupported(f"A resource of kind {resource.blueprint.kind!r} cannot be {what}.")


@short
def _begin(resource_id: int, phase: str, wanted: dict[str, Any]) -> None:
    lock_resource(resource_id)
    if start(resource_id=resource_id, phase=phase, wanted=wanted) is None:
        going = rows("SELECT phase FROM leases_run WHERE resource_id = %s AND lease_id IS NULL", (resource_id,))
        raise Conflict(f"Resource {resource_id} is busy with {going[0][0] if going else 'something else'}.")


@checked
def register(who: Caller, blueprint: str, given: Mapping[str, Any]) -> ResourceInfo:
    """Register a resource by hand; it is checked by its kind's build steps before it becomes active.

    Raises NotFound, NotSupported, InvalidRequest with the field, Conflict when it is registered already.
    """
    operator_only(who, "register resources")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"No blueprint {blueprint!r}.", field="blueprint")
    kind = registry.kind(row.kind)
    if not isinstance(kind, Registers):
        raise NotSupported(f"Resources of kind {row.kind!r} are not registered by hand.", field="blueprint")
    try:
        registration = kind.Registration.model_validate(dict(given))
    except ValidationError as error:
        raise invalid(error) from None
    draft = kind.register(views.config(row.kind, row.config), registration)
    try:
        with transaction.atomic():
            if allocation.lock_blueprint(row.pk) is None:
                raise NotFound(f"Blueprint {blueprint!r} was removed just now.", field="blueprint")
            room = allocation.insert(row, draft, actor=who.actor, message="Registered.", origin="registered")
            hints.after_commit("serve", row.resource_type)
    except IntegrityError as error:
        if "resource_identity_once" not in str(error):
            raise
        raise Conflict(f"{draft.identity!r} is registered already.", field="identity") from None
    return get(who, room.resource_id)
