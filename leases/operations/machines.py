"""Actions on the machine of an exclusive lease: stop, start, reboot, resize, change of instance type, tags, console.

Operators can act on any machine. Except for the console, these functions only request an action, which workers carry
out. `MachineInfo.progress` shows the progress of the action, and `outcome` its result. Acts that the kind of a resource
declares work in the same way (`ActInfo`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from blueprints import registry
from blueprints.contract import Acts as ActsOfKind
from blueprints.contract import Consoles, DeclaredAct, Kind, Powers, Reboots, Resizes, Retypes, Tags, offered_acts
from drydock.core.errors import DrydockError, InvalidRequest, NotAllowed, NotFound, NotSupported
from drydock.core.logging import hidden, redact
from drydock_client.values import ActInfo, ConsoleInfo, MachineInfo, Progress
from interfaces.errors import Unreachable
from leases.engine.actions import acts as act_phases
from leases.engine.actions import machines as machine_actions
from leases.engine.actions.acts import ActWish
from leases.engine.actions.machines import Wish
from leases.engine.catalogue import drafts
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction, rows
from leases.engine.core.transitions import record_event
from leases.models import Event, Lease, Resource, Run
from leases.operations import infos, resources
from leases.operations.callers import Caller, lease_of, operator_only
from leases.operations.interfaces import still_mine
from leases.reports import progress
from leases.validation.input_checks import checked, document
from leases.validation.requests import invalid

CAPABILITIES: Mapping[type, tuple[str, str]] = {
    Powers: ("stop-start", "Stopping and starting"),
    Reboots: ("reboot", "Rebooting"),
    Resizes: ("resize-volume", "Enlarging the disk"),
    Retypes: ("change-type", "Changing the instance type"),
    Tags: ("tags", "Setting tags"),
    Consoles: ("console-output", "Reading the console"),
}
"""Maps each capability's class in the contract to its public name and its name in messages."""
CONSOLE_BYTES = 64 << 10
LARGEST_DISK_GIB = 65_536
_MOST_TAGS, _NAME, _VALUE = 20, 63, 255
OURS = "drydock"
"""The prefix of tag names that are reserved for Drydock."""


class Held(NamedTuple):
    """A machine with the caller who acts on it, and the lease through which the caller acts, if any."""

    who: Caller
    resource: Resource
    lease_id: int | None

    @property
    def kind(self) -> Kind:
        """The kind of the machine's blueprint."""
        return registry.kind(self.resource.blueprint.kind)

    @property
    def config(self) -> Any:
        """The config of the machine's blueprint, as the kind parses it."""
        return specs.config(self.resource.blueprint.kind, self.resource.blueprint.config)

    def wish(self, phase: str, wanted: dict[str, Any], message: str) -> Wish:
        """Return a request for an action on the machine, with the caller as the requester."""
        return Wish(self.resource.pk, phase, wanted, message, self.who.actor, self.lease_id)


@checked
def get(who: Caller, lease_id: int) -> MachineInfo:
    """Return a lease's machine: its power, instance type, tags, capabilities and current action. Raises NotFound."""
    lease = lease_of(who, lease_id, related=True)
    return _info(Held(who, _resource_of(lease), lease_id))


@checked
def get_resource(who: Caller, resource_id: int) -> MachineInfo:
    """Return the machine of any resource. Only for operators. Raises NotFound, NotAllowed."""
    return _info(of_resource(who, resource_id))


@checked
def stop(who: Caller, lease_id: int) -> MachineInfo:
    """Switch a machine off, and keep it off. Has no effect if it is off. The content of its disk is kept.

    Raises NotFound, NotAllowed if the lease does not hold the whole machine, LeaseEnded, NotSupported with the
    capability, and Conflict while the machine is busy. The other actions raise the same errors.
    """
    return _switch(of_lease(who, lease_id), "off")


@checked
def start(who: Caller, lease_id: int) -> MachineInfo:
    """Switch a machine on again, and keep it on. Its address may change. Raises what `stop` raises."""
    return _switch(of_lease(who, lease_id), "on")


@checked
def reboot(who: Caller, lease_id: int) -> MachineInfo:
    """Reboot a machine. Raises what `stop` raises, and Conflict if the machine is off."""
    return _reboot(of_lease(who, lease_id))


@checked
def resize_volume(who: Caller, lease_id: int, disk_gib: int) -> MachineInfo:
    """Grow the boot disk of a machine to `disk_gib` GiB. A disk cannot be shrunk.

    Raises what `stop` raises, and InvalidRequest for an invalid size.
    """
    return _resize(of_lease(who, lease_id), disk_gib)


@checked
def change_type(who: Caller, lease_id: int, type_name: str) -> MachineInfo:
    """Change a machine to another instance type that its zone offers and its blueprint allows.

    The machine is stopped for the change, and started again if it was on. An exclusive lease gets the new size. If the
    machine cannot be started with the new instance type, it is changed back. Raises what `stop` raises, and
    InvalidRequest for an instance type that the machine's zone does not offer, that has a different architecture, or
    that is too small.
    """
    return _change_type(of_lease(who, lease_id), type_name)


@checked
def set_tags(who: Caller, lease_id: int, tags: Mapping[str, str]) -> MachineInfo:
    """Set these tags of a machine at its provider. Other tags are not changed.

    Raises what `stop` raises, and InvalidRequest for a tag name that is reserved for Drydock or set by the blueprint,
    or a tag that the provider does not accept.
    """
    return _set_tags(of_lease(who, lease_id), tags)


@checked
def console(who: Caller, lease_id: int) -> ConsoleInfo:
    """Return the last 64 KiB of a machine's console output, with secrets removed. Records an event.

    Raises what `stop` raises, and Unreachable if the provider does not return the output.
    """
    return _console(of_lease(who, lease_id))


def of_lease(who: Caller, lease_id: int) -> Held:
    """Return the machine that an active lease holds exclusively. Operators may also name a lease that is not exclusive.

    Raises NotFound, LeaseEnded, NotAllowed, InsideTransaction, and Conflict while the installation is suspended.
    """
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    resource = _resource_of(lease)
    if not who.operator and not _is_whole(lease_id):
        raise NotAllowed(
            f"Lease {lease_id} holds only a part of {resource.name}, and others may hold the rest.",
            hint="Request a whole machine (--exclusive), or ask an operator.",
        )
    return Held(who, resource, lease_id)


_WHOLE = """
    SELECT s.exclusive OR s.slots = r.total_slots FROM leases_share s JOIN leases_resource r ON r.id = s.resource_id
    WHERE s.lease_id = %s"""


def _is_whole(lease_id: int) -> bool:
    return any(whole for (whole,) in rows(_WHOLE, (lease_id,)))


def _resource_of(lease: Lease) -> Resource:
    if lease.resource is None:
        raise NotFound(f"Lease {lease.pk} has no machine yet.", field="lease")
    return lease.resource


def of_resource(who: Caller, resource_id: int) -> Held:
    """Return any resource as a machine. Only for operators. Raises NotFound, NotAllowed."""
    operator_only(who, "control a machine that is not leased to them")
    refuse_inside_transaction("This")
    found = Resource.objects.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"Resource {resource_id} does not exist.", field="resource")
    return Held(who, found, None)


def able(resource: Resource) -> tuple[str, ...]:
    """Return the names of the capabilities that a resource supports. Makes no external call."""
    try:
        kind = registry.kind(resource.blueprint.kind)
        lacking = kind.lacking(specs.config(kind.name, resource.blueprint.config))
    except DrydockError:
        return ()
    return tuple(name for base, (name, _) in CAPABILITIES.items() if isinstance(kind, base) and base not in lacking)


def refuse_unable(resource: Resource, base: type) -> None:
    """Raise NotSupported if a resource does not have the capability that is defined by the class `base`."""
    name, words = CAPABILITIES[base]
    can = able(resource)
    if name not in can:
        raise NotSupported(
            f"{words} ({name}) is not supported by the kind {resource.blueprint.kind}.", capability=name,
            hint=f"The kind supports: {', '.join(can) or 'no such actions'}.",
        )  # fmt: skip


def _switch(held: Held, power: str) -> MachineInfo:
    refuse_unable(held.resource, Powers)
    machine_actions.switch(held.wish("power", {"power": power}, f"Switching the machine {power} was requested."))
    return _info(held)


def _reboot(held: Held) -> MachineInfo:
    refuse_unable(held.resource, Reboots)
    machine_actions.ask(held.wish("reboot", {}, "A reboot was requested."))
    return _info(held)


def _resize(held: Held, disk_gib: int) -> MachineInfo:
    refuse_unable(held.resource, Resizes)
    there = disk_of(held.resource)
    if not max(there, 1) <= disk_gib <= LARGEST_DISK_GIB:
        has = f"The disk has {there} GiB and can only grow" if there else "A disk must have at least 1 GiB"
        raise InvalidRequest(f"{has}; the maximum is {LARGEST_DISK_GIB} GiB.", field="disk_gib")
    if disk_gib > there:
        machine_actions.ask(held.wish("resize", {"disk_gib": disk_gib}, f"A disk of {disk_gib} GiB was requested."))
    return _info(held)


def disk_of(resource: Resource) -> int:
    """Return the size of the machine's boot disk in GiB, or 0 if its image determines the size."""
    said = (resource.facts or {}).get("disk_gib")
    return said if isinstance(said, int) and said else resource.total_disk_mib // 1024


def _change_type(held: Held, type_name: str) -> MachineInfo:
    refuse_unable(held.resource, Retypes)
    wanted = drafts.retyped(held.resource, held.kind, held.config, type_name)
    said = f"A change of instance type from {wanted['from']} to {type_name} was requested."
    machine_actions.ask(held.wish("retype", wanted, said))
    return _info(held)


def _set_tags(held: Held, tags: Mapping[str, str]) -> MachineInfo:
    refuse_unable(held.resource, Tags)
    _refuse_odd(tags)
    kind, config = held.kind, held.config
    if said := isinstance(kind, Tags) and kind.refused_tags(config, tags):
        raise InvalidRequest(str(said), field="tags")
    machine_actions.ask(held.wish("tag", {"tags": dict(tags)}, f"Tags were set: {', '.join(sorted(tags))}."))
    return _info(held)


def _refuse_odd(tags: Mapping[str, str]) -> None:
    if not tags or len(tags) > _MOST_TAGS:
        raise InvalidRequest(f"Give between 1 and {_MOST_TAGS} tags.", field="tags")
    for name, value in tags.items():
        if not isinstance(value, str) or not 0 < len(name) <= _NAME or len(value) > _VALUE:
            raise InvalidRequest(
                f"A tag needs a name of 1 to {_NAME} and a value of at most {_VALUE} characters.", field=f"tags.{name}"
            )
        if name.lower().startswith(OURS):
            raise InvalidRequest(
                f"Tag names that begin with {OURS} are reserved: they identify the owner of a machine.",
                field=f"tags.{name}",
            )


def _console(held: Held) -> ConsoleInfo:
    resource = held.resource
    refuse_unable(resource, Consoles)
    kind = held.kind
    assert isinstance(kind, Consoles)
    view = specs.resource_view(resource)
    record_event(
        "machine.console", "The console was read.", actor=held.who.actor, resource_id=resource.pk,
        lease_id=held.lease_id,
    )  # fmt: skip
    with hidden(*specs.resource_secrets(view), *_of_leases(resource)):
        try:
            text = redact(_newest(kind.console(view)))
        except DrydockError as error:
            raise Unreachable(redact(f"The console of {resource.name} cannot be read: {error.message}")) from error
    return ConsoleInfo(resource=resource.pk, text=_newest(text), at=rows("SELECT clock_timestamp()")[0][0])


def _of_leases(resource: Resource) -> list[Any]:
    """Return the secrets of all leases on the machine, because the console output may contain those of any lease."""
    held = Lease.objects.filter(share__resource=resource).only("secrets")
    return [lease.secrets for lease in held]


def _newest(text: str) -> str:
    return text.encode(errors="replace")[-CONSOLE_BYTES:].decode(errors="ignore").replace("\0", "")


def _info(held: Held) -> MachineInfo:
    row = Resource.objects.select_related("blueprint", "failure").get(pk=held.resource.pk)
    last = Event.objects.filter(resource_id=row.pk, kind__in=_OUTCOMES).order_by("-id").first()
    said = {} if last is None else {
        "act": last.details.get("act", ""), "outcome": last.kind.removeprefix("machine."), "message": last.message,
        "at": last.at,
    }  # fmt: skip
    return MachineInfo(
        lease=held.lease_id, resource=row.pk, name=row.name, kind=row.blueprint.kind, state=row.state, power=row.power,
        power_wanted=row.power_wanted, instance_type=drafts.type_of(row), price=row.price,
        cpu_millicores=row.total_cpu_millicores, ram_mib=row.total_ram_mib, disk_gib=disk_of(row),
        tags=(row.facts or {}).get("tags", {}), capabilities=able(row),
        progress=progress.of_run(Run.objects.filter(resource=row, lease=None).first()),
        failure=infos.failure(getattr(row, "failure", None)), **said,
    )  # fmt: skip


_OUTCOMES = ("machine.asked", "machine.done", "machine.failed")
ACTS: Mapping[str, Callable[..., MachineInfo]] = {
    "stop": lambda held: _switch(held, "off"), "start": lambda held: _switch(held, "on"), "reboot": _reboot,
    "resize": _resize, "change-type": _change_type, "tags": _set_tags,
}  # fmt: skip
"""The functions for actions, by the name of the action.

Three actions take arguments: `resize` takes `disk_gib`, `change-type` takes `type_name`, and `tags` takes `tags`.
"""


@checked
def act_on_lease(who: Caller, lease_id: int, act: str, **asked: Any) -> MachineInfo:
    """Request an action from `ACTS` on the machine of a lease, by the name of the action."""
    known(act)
    return ACTS[act](of_lease(who, lease_id), **asked)


@checked
def act_on_resource(who: Caller, resource_id: int, act: str, **asked: Any) -> MachineInfo:
    """Request an action from `ACTS` on any resource, by the name of the action. Only for operators."""
    known(act)
    return ACTS[act](of_resource(who, resource_id), **asked)


def known(act: str) -> None:
    """Raise InvalidRequest if `ACTS` has no action with this name."""
    if act not in ACTS:
        raise InvalidRequest(
            f"{act!r} is not an action on a machine.", field="act", hint=f"Choose one of: {', '.join(ACTS)}."
        )


@checked
def console_of_resource(who: Caller, resource_id: int) -> ConsoleInfo:
    """Return the console output of any resource, and record an event. Only for operators."""
    return _console(of_resource(who, resource_id))


@checked
def acts(who: Caller, resource_id: int) -> list[ActInfo]:
    """Return the acts that a resource's kind declares, and whether the caller can start each one. Raises NotFound."""
    return _acts(_target(who, resource_id))


def running_act(resource_id: int) -> str | None:
    """Return the name of the act that runs on a resource, or None."""
    going = Run.objects.filter(resource=resource_id, lease=None, phase=Run.Phase.ACT).first()
    return None if going is None else str(going.wanted["act"])


def declared_acts(resource: Resource, events: Iterable[Event]) -> list[ActInfo]:
    """Return the acts that a resource's kind declares, each with its last outcome.

    `events` contains the resource's events about acts, the oldest first.

    Checks no permission, and does not say whether an act can be started now.
    """
    ends = {event.details["act"]: event for event in events if event.kind in _ACT_EVENTS}
    return [
        ActInfo(**infos.declared_act(act), resource=resource.pk, **_outcome(ends.get(act.name)))
        for act in _declared(resource).values()
    ]


@checked
def start_act(
    who: Caller, resource_id: int, name: str, *, arguments: Mapping[str, Any] | None = None
) -> ActInfo:  # fmt: skip
    """Start an act that the kind of a resource declares.

    Raises NotFound, NotAllowed, InvalidRequest with the argument, Conflict with a message about what is in the way, and
    InsideTransaction.
    """
    target = _target(who, resource_id)
    act = target.act(name)
    refuse_inside_transaction("Starting an act")
    if denied := target.denied(act):
        raise denied
    if target.lease_id is not None:
        still_mine(target.lease_id, who.id)
    given = _arguments(act, arguments or {})
    act_phases.begin(
        ActWish(resource_id=resource_id, act=act, arguments=given, actor=who.actor, lease_id=target.lease_id)
    )
    return next(one for one in _acts(target) if one.name == name)


@checked
def cancel_act(who: Caller, resource_id: int, name: str) -> ActInfo:
    """Cancel a running act. Owners can cancel only acts that were started through their own lease.

    Raises NotFound, also if the act is not running, and NotAllowed.
    """
    target = _target(who, resource_id)
    act = target.act(name)
    if denied := target.denied(act):
        raise denied
    going = Run.objects.filter(resource_id=resource_id, lease=None, phase=Run.Phase.ACT).first()
    if going is not None and not who.operator and going.wanted.get("lease") != target.lease_id:
        raise NotAllowed(f"{name} was not started for your lease.", hint="Ask an operator.")
    act_phases.cancel(resource_id, name, actor=who.actor)
    return next(one for one in _acts(target) if one.name == name)


class _Target(NamedTuple):
    """A resource on which the caller wants to act, and the caller's lease on the whole of it, if any."""

    who: Caller
    resource: Resource
    lease_id: int | None

    @property
    def declared(self) -> Mapping[str, DeclaredAct]:
        """The acts that the machine's kind declares, by name. Empty if the blueprint's config does not support acts."""
        return _declared(self.resource)

    def act(self, name: str) -> DeclaredAct:
        """Return an act by its name. Raises NotFound with a message that lists the acts."""
        found = self.declared.get(name)
        if found is None:
            there = ", ".join(self.declared) or "none"
            raise NotFound(
                f"A resource of kind {self.resource.blueprint.kind!r} has no act {name!r}.", field="act",
                hint=f"Its acts: {there}.",
            )  # fmt: skip
        return found

    def denied(self, act: DeclaredAct) -> NotAllowed | None:
        """Return why the caller may not start or cancel an act, or None if this is allowed."""
        if self.who.operator or (act.by == "holder" and self.lease_id is not None):
            return None
        if act.by == "operator":
            return NotAllowed(f"Only an operator may start {act.name}.", hint="Ask an operator.")
        return NotAllowed(
            f"{act.name} needs an active lease on the whole resource.",
            hint="Request a whole resource (--exclusive), or ask an operator.",
        )


def _declared(resource: Resource) -> Mapping[str, DeclaredAct]:
    kind = registry.kind(resource.blueprint.kind)
    config = specs.config(kind.name, resource.blueprint.config)
    lacking = kind.lacking(config)
    return {} if ActsOfKind in lacking else offered_acts(kind, config)


def _target(who: Caller, resource_id: int) -> _Target:
    """Return a resource that the caller may see, or that is part of one that the caller holds whole."""
    lease_id = act_phases.holding_lease(resource_id, who.id)
    rows_ = Resource.objects if lease_id is not None else resources.visible(who)
    found = rows_.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"Resource {resource_id} does not exist, or you have no lease on it.", field="resource")
    return _Target(who, found, lease_id)


def _arguments(act: DeclaredAct, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an act as its model parses them, as JSON. Raises InvalidRequest."""
    try:
        read = act.Arguments.model_validate(dict(given)).model_dump(mode="json")
    except ValidationError as error:
        raise invalid(error, "arguments", model=act.Arguments) from None
    # A model may accept text such as "NaN" for a number.
    document(read, "arguments")
    return read


def _acts(target: _Target) -> list[ActInfo]:
    """Return the acts of a resource with their status, by a number of statements that does not depend on the acts."""
    resource_id = target.resource.pk
    now, holders = act_phases.situation(resource_id, target.lease_id)
    going = Run.objects.filter(resource_id=resource_id, lease=None).first()
    last = Event.objects.filter(resource_id=resource_id, kind__in=_ACT_EVENTS).order_by("details__act", "-id")
    ends = {event.details["act"]: event for event in last.distinct("details__act")}
    return [
        ActInfo(
            **infos.declared_act(act), resource=resource_id,
            refused=str(target.denied(act) or act_phases.why_not(act, now, holders, named=target.who.operator)),
            progress=_progress(going, act), **_outcome(ends.get(act.name)),
        )
        for act in target.declared.values()
    ]  # fmt: skip


def _progress(going: Run | None, act: DeclaredAct) -> Progress | None:
    is_this = going is not None and going.phase == Run.Phase.ACT and going.wanted.get("act") == act.name
    return progress.of_run(going) if is_this else None


def _outcome(last: Event | None) -> dict[str, Any]:
    if last is None:
        return {}
    return {"outcome": last.kind.removeprefix("act."), "message": last.message, "at": last.at}


_ACT_EVENTS = ("act.asked", "act.cancelling", "act.done", "act.failed", "act.cancelled")
