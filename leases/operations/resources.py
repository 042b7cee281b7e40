"""Operations on resources, for operators: register, correct, drain, quarantine, check, switch, retire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import CLASSES
from blueprints.contract import Checks, Powers, Registers, Scans, Updates
from blueprints.identities import OF_BMC, SWITCH_PORT
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Draft
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotFound, NotSupported
from drydock_client.values import HostKey, RegistrationInfo, ResourceInfo, UpdateInfo
from interfaces.errors import Unreachable, failed_connection
from interfaces.keys import PublicKey
from leases.engine.actions import updates
from leases.engine.core import specs
from leases.engine.core.database import constraint, refuse_inside_transaction, rows, run, short
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_resource, record_event, wake_relatives
from leases.engine.resources import cleanup, provision, retirement
from leases.engine.resources import maintenance as switching
from leases.messaging import hints
from leases.models import Resource, Run
from leases.operations import infos
from leases.operations.callers import Caller, operator_only, own_leases
from leases.reasons import Reason
from leases.states import VANISHED, ResourceState
from leases.validation.input_checks import checked, document
from leases.validation.requests import invalid

GONE = Q(state="destroyed") | ~Q(gone_at=None)


def visible(who: Caller) -> Any:
    """Return the resources that the caller may see: all for operators, and those of their live leases for owners."""
    if who.operator:
        return Resource.objects.all()
    return Resource.objects.filter(leases__owner_id=who.id, leases__state__in=("acquired", "active", "released"))


@checked
def list_(
    who: Caller, *, type_: str = "", blueprint: str = "", state: str = "", name: str = "", gone: bool = False,
    limit: int = 500, after: int = 0,
) -> list[ResourceInfo]:  # fmt: skip
    """Return resources in the order of their ids.

    If `gone` is true, resources that no longer exist are included. For paging, `after` returns only resources with a
    higher id.
    """
    if state and state not in tuple(ResourceState):
        raise InvalidRequest(
            f"State {state!r} does not exist.", field="state", hint=f"Choose one of: {', '.join(ResourceState)}."
        )
    found = (visible(who) if gone else visible(who).exclude(GONE)).filter(id__gt=after)
    chosen = {"type": type_, "blueprint__name": blueprint, "state": state, "name": name}
    found = found.filter(**{column: value for column, value in chosen.items() if value})
    return _told(who, infos.resources(found.distinct().order_by("id")[:limit]))


@checked
def get(who: Caller, resource_id: int) -> ResourceInfo:
    """Return a resource by its id. Raises NotFound, also if the caller has no lease on the resource."""
    found = _told(who, infos.resources(visible(who).filter(pk=resource_id).distinct()))
    if not found:
        raise NotFound(f"Resource {resource_id} does not exist, or you have no lease on it.", field="resource")
    return found[0]


def _told(who: Caller, found: list[ResourceInfo]) -> list[ResourceInfo]:
    """Return the resources as the caller may see them, without leases of other owners."""
    if who.operator:
        return found
    others = (one.leases for info in found for one in (info.cleaning, info.update) if one is not None)
    named = {pk for info in found for pk in (*info.leases, info.reserved_for) if pk is not None}.union(*others)
    own = set(own_leases(who).filter(pk__in=named).values_list("pk", flat=True))
    return [
        replace(
            info,
            leases=tuple(pk for pk in info.leases if pk in own),
            reserved_for=info.reserved_for if info.reserved_for in own else None,
            facts={name: value for name, value in info.facts.items() if name not in _hidden(info)},
            identities=tuple(one for one in info.identities if not one.startswith(_OF_OPERATORS)),
            update=_update_told(info.update, own),
            **_cleaning_told(info, own),
        )
        for info in found
    ]


_OF_OPERATORS = (f"{OF_BMC} ", f"{SWITCH_PORT} ")
"""Identities that begin so contain the address of a BMC or a port of a switch, which owners do not see."""


def _hidden(info: ResourceInfo) -> frozenset[str]:
    """Return the names of the facts that only operators see: all of them if the kind is not installed here."""
    try:
        # The names of homes that were put aside contain the names of other leases.
        return registry.kind(info.kind).operator_facts | {"aside"}
    except DrydockError:
        return frozenset(info.facts)


def _update_told(update: UpdateInfo | None, own: set[int]) -> UpdateInfo | None:
    """Return an update without leases of other owners and without their ends."""
    if update is None or set(update.leases) <= own:
        return update
    leases = tuple(pk for pk in update.leases if pk in own)
    sentence = f"An update waits for leases to end. {update.disruption}"
    return replace(update, leases=leases, until=None, sentence=sentence)


def _cleaning_told(info: ResourceInfo, own: set[int]) -> dict[str, Any]:
    """Return the fields about a cleaning after leases of other owners, without these leases and what steps said.

    Steps may name files of the leases after which they clean.
    """
    if info.cleaning is None or set(info.cleaning.leases) <= own:
        return {}
    leases = tuple(pk for pk in info.cleaning.leases if pk in own)
    step = None if info.progress is None else replace(info.progress, sentence="", failure="", task="")
    return {
        "cleaning": replace(info.cleaning, leases=leases, sentence="", failure=""), "message": "", "progress": step,
    }  # fmt: skip


def _resource(who: Caller, resource_id: int, what: str) -> Resource:
    operator_only(who, what)
    found = Resource.objects.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"Resource {resource_id} does not exist.", field="resource")
    return found


def there(who: Caller, resource_id: int, what: str) -> Resource:
    """Return a pending or active resource, if the caller is an operator.

    Raises NotFound, NotAllowed, and Conflict if the resource has another state.
    """
    found = _resource(who, resource_id, what)
    if found.state not in ("pending", "active"):
        raise Conflict(f"Resource {resource_id} is {found.state}; it must be pending or active for this.")
    return found


@checked
def drain(who: Caller, resource_id: int, *, drained: bool = True, reason: str = "") -> ResourceInfo:
    """Drain a resource: it serves no new leases, and is retired when it is idle.

    With `drained=False`, the resource serves new leases again.
    """
    resource = there(who, resource_id, "drain resources")
    if Resource.objects.filter(pk=resource_id, drained=not drained).update(drained=drained):
        if not resource.quarantined:
            Resource.objects.filter(pk=resource_id).update(note=reason[:2000] if drained else "")
        word = "drained" if drained else "undrained"
        record_event(f"resource.{word}", reason, actor=who.actor, resource_id=resource_id)
        hints.after_commit("sweep" if drained else "serve", *([] if drained else [resource.type]))
        if not drained:
            wake_relatives(resource_id)
    return get(who, resource_id)


@checked
def quarantine(who: Caller, resource_id: int, *, message: str) -> ResourceInfo:
    """Take a resource out of service and keep it unchanged. Leases on the resource are not affected.

    Raises InvalidRequest if the note is empty.
    """
    if not message.strip():
        raise InvalidRequest("A quarantine needs a note that gives the reason.", field="note")
    there(who, resource_id, "quarantine resources")
    Resource.objects.filter(pk=resource_id).update(quarantined=True, note=message[:2000])
    record_event("resource.quarantined", message, actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def unquarantine(who: Caller, resource_id: int) -> ResourceInfo:
    """Put a resource back into service, and wake pending leases.

    A resource with a deferred cleanup remains in maintenance until the cleanup is done; the resource's message says so.
    """
    resource = there(who, resource_id, "end a quarantine")
    if Resource.objects.filter(pk=resource_id, quarantined=True).update(quarantined=False, note="", check_failures=0):
        record_event("resource.unquarantined", "", actor=who.actor, resource_id=resource_id)
        hints.after_commit("serve", resource.type)
        wake_relatives(resource_id)
    cleanup.try_now(resource_id)
    return get(who, resource_id)


@checked
def forbid_reboots(who: Caller, resource_id: int, *, reason: str) -> ResourceInfo:
    """Keep maintenance from rebooting a resource or any resource below it, until `allow_reboots` is called.

    Reboots that operators and owners request themselves are not affected. Raises InvalidRequest if no reason is given.
    """
    if not reason.strip():
        raise InvalidRequest("Give a reason, because builds may wait for the reboot.", field="reason")
    there(who, resource_id, "forbid reboots")
    Resource.objects.filter(pk=resource_id).update(no_reboots=reason[:2000])
    record_event("resource.no_reboots", reason, actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def allow_reboots(who: Caller, resource_id: int) -> ResourceInfo:
    """Let maintenance reboot a resource again."""
    there(who, resource_id, "allow reboots")
    if Resource.objects.filter(pk=resource_id).exclude(no_reboots="").update(no_reboots=""):
        record_event("resource.reboots_allowed", "", actor=who.actor, resource_id=resource_id)
        hints.after_commit("sweep")
    return get(who, resource_id)


@checked
def update(who: Caller, resource_id: int, *, reason: str) -> ResourceInfo:
    """Update an outdated resource now, although this disturbs the leases on it.

    The owners of these leases are notified with the reason. No step of the leases is called during the update;
    afterwards they are set up again. The update waits while an operator forbids to reboot the resource, and while a
    step that cannot be interrupted runs. Calling this again during the update has no effect. Raises InvalidRequest if
    no reason is given, NotSupported if the kind cannot do this, and Conflict if the resource is up to date or busy.
    """
    if not reason.strip():
        raise InvalidRequest("Give a reason, because the owners of its leases are told.", field="reason")
    there(who, resource_id, "update leased resources")
    updates.force(resource_id, actor=who.actor, reason=reason[:1000])
    return get(who, resource_id)


_CONFIRMED = "The machine disappeared together with everything else in its account, and an operator had it removed."


@checked
def retire(who: Caller, resource_id: int) -> ResourceInfo:
    """Destroy a resource that no lease holds, or hand it back. Raises Conflict while a lease holds the resource.

    A resource that disappeared together with everything else in its account is removed even if leases hold it. These
    leases break, and the destroy plan asks the provider whether all objects of the resource are gone. A resource that
    is cleaned apart from its leases is handed back only once it is clean; until then, raises Conflict.
    """
    resource = there(who, resource_id, "retire resources")
    if resource.observed == VANISHED and retirement.lose(
        resource_id, reason=Reason.LOST, message=_CONFIRMED, actor=who.actor
    ):
        return get(who, resource_id)
    if not retirement.retire_idle(resource_id, reason=Reason.OPERATOR, message="Retired.", actor=who.actor):
        _refuse_unclean(resource)
        raise Conflict(
            f"Resource {resource_id} is leased or busy.",
            hint="Drain it instead; it is removed when its last lease ends.",
        )
    return get(who, resource_id)


def _refuse_unclean(resource: Resource) -> None:
    """Raise Conflict if the resource is not handed back before it is clean."""
    kept = rows(f"SELECT 1 FROM leases_resource r WHERE r.id = %s AND {retirement.KEPT_UNTIL_CLEAN}", (resource.pk,))
    found = infos.resources(Resource.objects.filter(pk=resource.pk))[0].cleaning if kept else None
    if found is not None:
        after = ", ".join(map(str, found.leases))
        raise Conflict(
            f"Resource {resource.pk} must be cleaned after lease {after} before it is handed back ({found.state}).",
            hint=f"See its progress: drydock resources show {resource.pk}. If it can never be cleaned, give it up: "
            f"drydock resources destroy {resource.pk} --force.",
        )


@checked
def force_destroy(who: Caller, resource_id: int, *, reason: str) -> ResourceInfo:
    """Record that a resource is gone, whatever the provider reports. The resource's leases break and its row is closed.

    Intended for resources that cannot be destroyed any more. Raises InvalidRequest if no reason is given, NotFound,
    NotAllowed.
    """
    if not reason.strip():
        raise InvalidRequest("Give a reason, because something may be left behind at the provider.", field="reason")
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
    """Switch a resource `on` or `off` and keep it in that state, or switch it off and on once (`cycle`).

    Raises InvalidRequest, NotSupported, and Conflict if the resource is busy when a cycle is requested.
    """
    if wanted not in ("on", "off", "cycle"):
        raise InvalidRequest("power must be on, off or cycle.", field="power")
    resource = there(who, resource_id, "switch power")
    _supports(resource, Powers, "switched on and off")
    if wanted == "cycle":
        _begin(resource_id, "power", {"power": wanted})
    switching.want_power(resource_id, "off" if wanted == "off" else "on")
    record_event("resource.power", f"Power {wanted} was requested.", actor=who.actor, resource_id=resource_id)
    return get(who, resource_id)


@checked
def check(who: Caller, resource_id: int) -> ResourceInfo:
    """Start a health check of a resource now. Deferred cleanups are tried again after it.

    Raises NotSupported, and Conflict if the resource is busy.
    """
    resource = there(who, resource_id, "check resources")
    _supports(resource, Checks, "checked")
    _begin(resource_id, "check", {})
    cleanup.try_now(resource_id)
    record_event("resource.check", "A check was requested.", actor=who.actor, resource_id=resource_id)
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
        raise Conflict(f"Resource {resource_id} is busy with {going[0][0] if going else 'another run'}.")


@checked
def register(who: Caller, blueprint: str, given: Mapping[str, Any]) -> ResourceInfo:
    """Register a resource. The build steps of its kind check the resource before it becomes active.

    If the given fields include `credential`, its secrets are stored encrypted, separately from the other fields, and
    used only for this resource.

    While the check fails, the resource is listed with the problem, is checked again with increasing delay, and can
    be changed or removed. Raises NotFound, NotSupported, InvalidRequest with the field, and Conflict if the
    resource is already registered.
    """
    return get(who, _register(who, blueprint, given))


@checked
def check_registration(who: Caller, blueprint: str, given: Mapping[str, Any]) -> RegistrationInfo:
    """Check a registration as `register` does, and store nothing. Raises what `register` raises."""
    with transaction.atomic():
        row = Resource.objects.prefetch_related("identities").get(pk=_register(who, blueprint, given))
        transaction.set_rollback(True)
    named = tuple(sorted(map(str, row.identities.all())))
    return RegistrationInfo(
        blueprint=blueprint, name=row.name, identity=row.identity or "", identities=named, attributes=row.attributes,
        traits=tuple(row.traits),
    )  # fmt: skip


def _register(who: Caller, blueprint: str, given: Mapping[str, Any]) -> int:
    """Register a resource, and return its id."""
    operator_only(who, "register resources")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"Blueprint {blueprint!r} does not exist.", field="blueprint")
    given, own = _apart(row, given)
    registration, draft = _read(row, given)
    try:
        with transaction.atomic():
            if provision.lock_blueprint(row.pk) is None:
                raise NotFound(f"Blueprint {blueprint!r} was removed meanwhile.", field="blueprint")
            room = provision.insert(
                row, draft, actor=who.actor, message="Registered.", origin="registered", registration=registration
            )
            if own:
                provision.set_credential(room.resource_id, own)
            hints.after_commit("serve", row.resource_type)
    except IntegrityError as error:
        raise _taken(error, draft) from None
    return room.resource_id


@checked
def change_registration(who: Caller, resource_id: int, given: Mapping[str, Any]) -> ResourceInfo:
    """Correct the registration of a resource: the given fields replace the stored ones, and null removes a field.

    The resource is checked again before it can be leased. Raises NotFound, NotSupported, InvalidRequest with the field,
    and Conflict while the resource is leased or busy.
    """
    resource = there(who, resource_id, "change resources")
    if resource.origin != Resource.Origin.REGISTERED:
        raise NotSupported(f"Resource {resource_id} was {resource.origin}; only registered resources can be changed.")
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
def scan_host_keys(who: Caller, blueprint: str, address: str, port: int = 22) -> list[HostKey]:
    """Return the keys that the host at an address presents now. Stores nothing.

    Before registering the host, compare these keys with those shown on its own console, because another host on the
    path could present its own keys. Raises NotFound, NotSupported, InvalidRequest, and InterfaceError if no host
    answers.
    """
    operator_only(who, "scan for host keys")
    refuse_inside_transaction("Scanning for host keys")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"Blueprint {blueprint!r} does not exist.", field="blueprint")
    kind = registry.kind(row.kind)
    if not isinstance(kind, Scans):
        raise NotSupported(f"Hosts of kind {row.kind!r} have no host keys to scan.", field="blueprint")
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
    """A host that is to be registered, with its keys for an operator to confirm."""

    name: str
    given: dict[str, Any]
    keys: tuple[HostKey, ...] = ()
    shown: bool = False
    """Whether the host presented the keys. If False, the registration contains them."""
    problem: str = ""
    field: str = ""


AT_ONCE = 16
"""Maximum number of hosts whose keys are read at the same time."""


@checked
def examine_registrations(who: Caller, blueprint: str, rows: Sequence[Mapping[str, Any]]) -> list[Examined]:
    """Parse registrations without storing them. Return the host keys of each host, or the problem of its registration.

    The keys come from the registration or, if it contains none, from the host itself. Raises NotFound, NotSupported,
    NotAllowed.
    """
    operator_only(who, "register resources")
    refuse_inside_transaction("Scanning for host keys")
    row = Blueprint.objects.filter(name=blueprint).first()
    if row is None:
        raise NotFound(f"Blueprint {blueprint!r} does not exist.", field="blueprint")
    kind, view = registry.kind(row.kind), specs.blueprint_view(row, secrets=True)

    def keys(given: Mapping[str, Any]) -> list[HostKey] | DrydockError:
        """Return the keys that a host presents, or the error. If the registration contains keys, return an empty list.

        Runs in a thread, without the database.
        """
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
    """Return the error for a CSV file that cannot be parsed."""
    return InvalidRequest(f"The CSV cannot be read: {said}.", field="text")


def wrong(found: Examined) -> InvalidRequest:
    """Convert the problem of a single registration to an error that names the field."""
    return InvalidRequest(found.problem, field=found.field)


def _read(blueprint: Blueprint, given: Mapping[str, Any]) -> tuple[dict[str, Any], Draft]:
    """Return a registration as parsed by its kind, with its draft. Raises InvalidRequest, NotSupported."""
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Registers):
        raise NotSupported(f"Resources of kind {blueprint.kind!r} cannot be registered by hand.", field="blueprint")
    try:
        registration = kind.Registration.model_validate(dict(given))
    except ValidationError as error:
        raise invalid(error) from None
    draft = kind.register(specs.config(blueprint.kind, blueprint.config), registration)
    return registration.model_dump(mode="json", exclude_unset=True), draft


CREDENTIAL = "credential"
"""The field of a registration with the own credential of the resource, unless the kind has a field of that name."""


def _apart(blueprint: Blueprint, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a registration, and the own credential of the resource that was among them."""
    kind, fields = registry.kind(blueprint.kind), dict(given)
    if CREDENTIAL in getattr(getattr(kind, "Registration", None), "model_fields", {}):
        return fields, {}
    secrets = fields.pop(CREDENTIAL, None)
    return fields, own_credential(blueprint, secrets) if secrets else {}


def own_credential(blueprint: Blueprint, secrets: Any) -> dict[str, Any]:
    """Check secrets that belong to one resource, and return them in the form in which they are stored.

    Raises InvalidRequest, whose message never contains a secret, and NotSupported.
    """
    kind = registry.kind(blueprint.kind)
    if kind.OwnCredential is None:
        raise NotSupported(
            f"Resources of kind {blueprint.kind!r} have no credential of their own.", field=CREDENTIAL,
            hint="Name a credential in the config of the blueprint.",
        )  # fmt: skip
    if not isinstance(secrets, Mapping):
        raise InvalidRequest("Give the secrets as a JSON object.", field=CREDENTIAL)
    document(secrets, CREDENTIAL)
    try:
        kind.OwnCredential.model_validate(dict(secrets))
    except ValidationError as error:
        raise invalid(error, CREDENTIAL, model=kind.OwnCredential) from None
    return dict(secrets)


def _taken(error: IntegrityError, draft: Draft) -> DrydockError:
    if constraint(error) == "thing_once":
        names = Q()
        for one in draft.identities:
            names |= Q(identities__namespace=one.namespace, identities__value=one.value)
        for other in Resource.objects.filter(names).select_related("blueprint")[:1]:
            there = f"resource {other.pk} ({other}) of blueprint {other.blueprint.name}"
            same = next(one for one in draft.identities if str(one) in set(map(str, other.identities.all())))
            there += f", which has the same {same.namespace.partition(':')[0].replace('_', ' ')}"
            return Conflict(f"{draft.name or draft.identity} is already {there}.", field="identities")
        return Conflict("Another resource already has one of the host's identities.", field="identities")
    if constraint(error) != "resource_identity_once":
        raise error
    return Conflict(f"{draft.identity!r} is already registered.", field="identity")


def _rewrite(resource: Resource, registration: Mapping[str, Any], draft: Draft) -> None:
    """Write the registration of a locked resource, and check the resource again."""
    if resource.state not in ("pending", "active"):
        raise Conflict(f"Resource {resource.pk} is {resource.state}; it must be pending or active for this.")
    if resource.used_slots:
        raise Conflict(
            f"Resource {resource.pk} is held by leases and cannot be changed now.",
            hint="Quarantine the resource, and change it after the leases have ended.",
        )
    if resource.state == "active" and not isinstance(registry.kind(resource.blueprint.kind), Updates):
        raise NotSupported(
            f"A resource of kind {resource.blueprint.kind!r} cannot be changed once it is active.",
            hint="Remove the resource, and register it again.",
        )
    _refuse_fixed(resource, registration)
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
    provision.set_identities(resource.pk, draft.identities)
    message = "Changed. The resource is checked before it is leased again."
    Resource.objects.filter(pk=resource.pk).update(message=message, check_failures=0, **columns)
    if resource.state == "pending":
        start(resource_id=resource.pk, phase="build")


def _refuse_fixed(resource: Resource, registration: Mapping[str, Any]) -> None:
    """Raise InvalidRequest, with the field, if a field of an active resource changes that cannot."""
    kind = registry.kind(resource.blueprint.kind)
    if not isinstance(kind, Registers) or resource.state != "active" or not kind.fixed:
        return
    former, wanted = (kind.Registration.model_validate(dict(one)) for one in (resource.registration, registration))
    for name in sorted(kind.fixed):
        if getattr(former, name) != getattr(wanted, name):
            raise InvalidRequest(
                f"The field {name} of an active {resource.type} cannot be changed.", field=name,
                hint="Remove the resource, and register it again.",
            )  # fmt: skip


_FREE = (Run.Phase.BUILD, Run.Phase.CHECK, Run.Phase.UPDATE)


def _end_run(resource: Resource) -> None:
    """End the check that is running, because its result would be about the old registration.

    Raises Conflict if another run is active.
    """
    going = Run.objects.filter(resource=resource, lease=None).first()
    if going is None:
        return
    if going.phase not in _FREE or going.uninterruptible:
        raise Conflict(f"Resource {resource.pk} is busy with {going.phase}.", hint="Try again when that is done.")
    going.delete()
