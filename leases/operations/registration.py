"""Registering resources by hand, and correcting what was said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.contract import Registers, Scans, Updates
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Draft
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotFound, NotSupported
from interfaces.errors import Unreachable, failed_connection
from interfaces.keys import PublicKey
from leases import hints
from leases.client.values import HostKey, ResourceInfo
from leases.engine.core import specs
from leases.engine.core.database import constraint, refuse_inside_transaction
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_resource, record_event
from leases.engine.resources import provision
from leases.given import checked
from leases.models import Resource, Run
from leases.operations.callers import Caller, operator_only
from leases.operations.resources import get, there
from leases.requests import invalid


@checked
def register(who: Caller, blueprint: str, given: Mapping[str, Any]) -> ResourceInfo:
    """Register a resource by hand; it is checked by its kind's build steps before it becomes active. While that fails
    it stays listed with the problem, is tried again with a growing delay, and can be changed or removed.

    Raises NotFound, NotSupported, InvalidRequest with the field, Conflict when it is registered already.
    """
    operator_only(who, "register resources")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"No blueprint {blueprint!r}.", field="blueprint")
    registration, draft = _read(row, given)
    try:
        with transaction.atomic():
            if provision.lock_blueprint(row.pk) is None:
                raise NotFound(f"Blueprint {blueprint!r} was removed just now.", field="blueprint")
            room = provision.insert(
                row, draft, actor=who.actor, message="Registered.", origin="registered", registration=registration
            )
            hints.after_commit("serve", row.resource_type)
    except IntegrityError as error:
        raise _taken(error, draft) from None
    return get(who, room.resource_id)


@checked
def change(who: Caller, resource_id: int, given: Mapping[str, Any]) -> ResourceInfo:
    """Correct what was said of a registered resource: the fields given replace those of its registration, null takes
    one away. It is checked again before anybody gets it.

    Raises NotFound, NotSupported, InvalidRequest with the field, and Conflict while leases hold it or it is busy.
    """
    resource = there(who, resource_id, "change resources")
    if resource.origin != Resource.Origin.REGISTERED:
        raise NotSupported(f"Resource {resource_id} was {resource.origin}; only registered ones are changed.")
    wanted = {name: value for name, value in {**resource.registration, **given}.items() if value is not None}
    registration, draft = _read(resource.blueprint, wanted)
    try:
        with transaction.atomic():
            lock_resource(resource_id)
            _rewrite(Resource.objects.select_related("blueprint").get(pk=resource_id), registration, draft)
            message = f"Changed: {', '.join(sorted(given))}."
            record_event("resource.changed", message, actor=who.actor, resource_id=resource_id)
            hints.after_commit("sweep")
    except IntegrityError as error:
        raise _taken(error, draft) from None
    return get(who, resource_id)


@checked
def scan(who: Caller, blueprint: str, address: str, port: int = 22) -> list[HostKey]:
    """The keys that the host at an address shows now, to be compared with what its own console says before it is
    registered with them: whoever is between could show others. Nothing is stored.

    Raises NotFound, NotSupported, InvalidRequest, and InterfaceError when no host answers.
    """
    operator_only(who, "scan for host keys")
    refuse_inside_transaction("Scanning for host keys")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"No blueprint {blueprint!r}.", field="blueprint")
    kind = registry.kind(row.kind)
    if not isinstance(kind, Scans):
        raise NotSupported(f"Hosts of kind {row.kind!r} have no keys to be scanned.", field="blueprint")
    found = _scanned(kind, specs.blueprint_view(row, secrets=True), address, port)
    record_event("blueprint.scanned", f"{address} port {port}"[:2000], actor=who.actor, blueprint_id=row.pk)
    return found


def _scanned(kind: Scans, view: BlueprintView, address: str, port: int) -> list[HostKey]:
    if not address or "\0" in address or not 1 <= port <= 65535:
        wrong = "port" if address and "\0" not in address else "address"
        raise InvalidRequest("Give an address, and a port from 1 to 65535.", field=wrong)
    try:
        return [_host_key(line) for line in kind.scan(view, address, port)]
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"Cannot connect: {failed_connection(error, address, port)}.") from error


def _host_key(line: str) -> HostKey:
    key = PublicKey.parse(line)
    return HostKey(key=key.line, fingerprint=key.fingerprint)


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A host that somebody wants to register, with the keys that a person is to confirm."""

    name: str
    given: dict[str, Any]
    keys: tuple[HostKey, ...] = ()
    shown: bool = False
    """The host showed the keys; else they were given."""
    problem: str = ""
    field: str = ""


AT_ONCE = 16
"""Hosts that are asked for their keys at the same time."""


@checked
def examine(who: Caller, blueprint: str, rows: Sequence[Mapping[str, Any]]) -> list[Examined]:
    """Read registrations without storing them: what is wrong with each, and the keys that go with it, as given or, where
    none are given, as its host shows them now. Raises NotFound, NotSupported, NotAllowed."""
    operator_only(who, "register resources")
    refuse_inside_transaction("Scanning for host keys")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"No blueprint {blueprint!r}.", field="blueprint")
    kind, view = registry.kind(row.kind), specs.blueprint_view(row, secrets=True)

    def keys(given: Mapping[str, Any]) -> list[HostKey] | DrydockError:
        """Asked in a thread of its own, which knows no database."""
        if not isinstance(kind, Scans) or given.get("host_keys"):
            return []
        try:
            port = given.get("port", 22)
            address = str(given.get("address", ""))
            return _scanned(kind, view, address, port if isinstance(port, int) else 0)
        except DrydockError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE, "scan") as pool:
        asked = [pool.submit(copy_context().run, keys, given) for given in rows]
        found = [_examined(row, given, one.result()) for given, one in zip(rows, asked, strict=True)]
    if any(one.shown for one in found):
        record_event(
            "blueprint.scanned", f"{sum(one.shown for one in found)} hosts", actor=who.actor, blueprint_id=row.pk
        )
    return found


def _examined(row: Blueprint, given: Mapping[str, Any], keys: list[HostKey] | DrydockError) -> Examined:
    name = str(given.get("name") or given.get("address") or "-")
    if isinstance(keys, DrydockError):
        return Examined(name=name, given=dict(given), problem=str(keys), field=keys.field)
    try:
        _, draft = _read(row, {**given, "host_keys": [key.key for key in keys]} if keys else given)
    except DrydockError as error:
        return Examined(name=name, given=dict(given), problem=str(error), field=error.field)
    typed = [_host_key(line) for line in draft.facts.get("host_keys", ())]
    return Examined(name=draft.name, given=dict(given), keys=tuple(keys or typed), shown=bool(keys))


def unreadable(said: str) -> InvalidRequest:
    """CSV that cannot be read."""
    return InvalidRequest(f"The CSV cannot be read: {said}.", field="text")


def wrong(found: Examined) -> InvalidRequest:
    """What is wrong with a single host, as the error of its field."""
    return InvalidRequest(found.problem, field=found.field)


def _read(blueprint: Blueprint, given: Mapping[str, Any]) -> tuple[dict[str, Any], Draft]:
    """A registration as its kind reads it, and the draft that follows from it. Raises InvalidRequest, NotSupported."""
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Registers):
        raise NotSupported(f"Resources of kind {blueprint.kind!r} are not registered by hand.", field="blueprint")
    try:
        registration = kind.Registration.model_validate(dict(given))
    except ValidationError as error:
        raise invalid(error) from None
    draft = kind.register(specs.config(blueprint.kind, blueprint.config), registration)
    return registration.model_dump(mode="json", exclude_unset=True), draft


def _taken(error: IntegrityError, draft: Draft) -> DrydockError:
    if constraint(error) != "resource_identity_once":
        raise error
    return Conflict(f"{draft.identity!r} is registered already.", field="identity")


def _rewrite(resource: Resource, registration: Mapping[str, Any], draft: Draft) -> None:
    """Write the registration and have the resource checked anew. It is locked."""
    if resource.state not in ("pending", "active"):
        raise Conflict(f"Resource {resource.pk} is {resource.state}.")
    if resource.used_slots:
        raise Conflict(
            f"Resource {resource.pk} is held by leases.", hint="Quarantine it, and change it when they have ended."
        )
    if resource.state == "active" and not isinstance(registry.kind(resource.blueprint.kind), Updates):
        raise NotSupported(
            f"A resource of kind {resource.blueprint.kind!r} cannot be changed once it is active.",
            hint="Remove it, and register it again.",
        )
    _end_run(resource)
    columns: dict[str, Any] = {"registration": registration, "identity": draft.identity, "name": draft.name}
    if resource.state == "pending":
        columns |= {f"total_{name}": getattr(draft.capacity, name) for name in CLASSES}
        columns |= {"attributes": draft.attributes, "traits": sorted(draft.traits), "facts": draft.facts}
        provision.set_further(resource.pk, draft.capacity)
    else:
        columns |= {
            "generation": 0,
            "suspect_since": Now(),
            "observed": "changed",
            "check_at": Now(),
            "in_maintenance": True,
        }
    message = "Changed; it is checked before it serves."
    Resource.objects.filter(pk=resource.pk).update(message=message, check_failures=0, **columns)
    if resource.state == "pending":
        start(resource_id=resource.pk, phase="build")


_FREE = (Run.Phase.BUILD, Run.Phase.CHECK, Run.Phase.UPDATE)


def _end_run(resource: Resource) -> None:
    """End the look that is under way: what it is about to answer is about the resource as it was."""
    going = Run.objects.filter(resource=resource, lease=None).first()
    if going is None:
        return
    if going.phase not in _FREE or going.uninterruptible:
        raise Conflict(f"Resource {resource.pk} is busy with {going.phase}.", hint="Ask again when that is over.")
    going.delete()
