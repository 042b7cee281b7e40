"""What is done to the machine of a lease that holds all of it: stop, start, reboot, a larger disk, another type, tags,
and its console. Operators do the same to any.

Everything but the console is only asked for here and carried out by workers: `MachineInfo.progress` says how far it
is, and its `outcome` how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from blueprints import registry
from blueprints.contract import Consoles, Kind, Powers, Reboots, Resizes, Retypes, Tags
from drydock.core.errors import DrydockError, InvalidRequest, NotAllowed, NotFound, NotSupported
from drydock.core.logging import hidden, redact
from interfaces.errors import Unreachable
from leases.client.values import ConsoleInfo, MachineInfo
from leases.engine.catalogue import drafts
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction, rows
from leases.engine.core.transitions import record_event
from leases.engine.lifecycle import machine_phases
from leases.engine.lifecycle.machine_phases import Wish
from leases.given import checked
from leases.models import Event, Lease, Resource, Run
from leases.operations import reading
from leases.operations.callers import Caller, lease_of, operator_only
from leases.operations.using import still_mine
from leases.reports import progress

CAPABILITIES: Mapping[type, tuple[str, str]] = {
    Powers: ("stop-start", "Stopping and starting"),
    Reboots: ("reboot", "Rebooting"),
    Resizes: ("resize-volume", "A larger disk"),
    Retypes: ("change-type", "Another type"),
    Tags: ("tags", "Setting tags"),
    Consoles: ("console-output", "Reading the console"),
}
"""Class of the contract -> the name of the capability on every face, and in words."""
CONSOLE_BYTES = 64 << 10
LARGEST_DISK_GIB = 65_536
_MOST_TAGS, _NAME, _VALUE = 20, 63, 255
OURS = "drydock"
"""How the names of tags begin that are ours to set."""


class Held(NamedTuple):
    """A machine, and the lease for which something is done to it."""

    who: Caller
    resource: Resource
    lease_id: int | None

    @property
    def kind(self) -> Kind:
        """What it is made by."""
        return registry.kind(self.resource.blueprint.kind)

    @property
    def config(self) -> Any:
        """Its blueprint's config as the kind reads it."""
        return specs.config(self.resource.blueprint.kind, self.resource.blueprint.config)

    def wish(self, phase: str, wanted: dict[str, Any], message: str) -> Wish:
        """What is asked of it, in the name of who asks."""
        return Wish(self.resource.pk, phase, wanted, message, self.who.actor, self.lease_id)


@checked
def get(who: Caller, lease_id: int) -> MachineInfo:
    """The machine of a lease: its power, type and tags, what can be done to it and what is being done. Raises
    NotFound."""
    lease = lease_of(who, lease_id, related=True)
    return _info(Held(who, _resource_of(lease), lease_id))


@checked
def get_resource(who: Caller, resource_id: int) -> MachineInfo:
    """The same of any resource, for operators. Raises NotFound, NotAllowed."""
    return _info(of_resource(who, resource_id))


@checked
def stop(who: Caller, lease_id: int) -> MachineInfo:
    """Switch it off, and keep it off; stopped already is fine. What is on its disk stays.

    Raises NotFound, NotAllowed where the lease does not hold the whole machine, LeaseEnded, NotSupported with the
    capability, and Conflict while the machine is busy with something else. So do all others here.
    """
    return _switch(of_lease(who, lease_id), "off")


@checked
def start(who: Caller, lease_id: int) -> MachineInfo:
    """Switch it on again, and keep it on. Its address may be another one."""
    return _switch(of_lease(who, lease_id), "on")


@checked
def reboot(who: Caller, lease_id: int) -> MachineInfo:
    """Reboot it. Raises Conflict while it is off, too."""
    return _reboot(of_lease(who, lease_id))


@checked
def resize_volume(who: Caller, lease_id: int, disk_gib: int) -> MachineInfo:
    """Let its boot disk have so many GiB; it never shrinks. Raises InvalidRequest, too."""
    return _resize(of_lease(who, lease_id), disk_gib)


@checked
def change_type(who: Caller, lease_id: int, type_name: str) -> MachineInfo:
    """Make it another instance type of its zone, which its blueprint allows: it is stopped for that, and started
    again if it was on. What the lease has of a machine that it holds alone follows. Where it cannot be started as the
    new type it becomes the old one again.

    Raises InvalidRequest, too, for a type that is not offered there, of another architecture, or too small.
    """
    return _change_type(of_lease(who, lease_id), type_name)


@checked
def set_tags(who: Caller, lease_id: int, tags: Mapping[str, str]) -> MachineInfo:
    """Set these tags at its provider; others stay. Raises InvalidRequest, too, for names that are ours or the
    blueprint's, and for what the provider does not take."""
    return _set_tags(of_lease(who, lease_id), tags)


@checked
def console(who: Caller, lease_id: int) -> ConsoleInfo:
    """The newest 64 KiB that it wrote on its console, without secrets. Recorded. Raises Unreachable, too, where the
    provider does not tell."""
    return _console(of_lease(who, lease_id))


def of_lease(who: Caller, lease_id: int) -> Held:
    """The machine that an active lease holds all of; of any active lease for an operator. Raises NotFound, LeaseEnded,
    NotAllowed, Conflict while the installation is suspended, InsideTransaction."""
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    resource = _resource_of(lease)
    if not who.operator and not _is_whole(lease_id):
        raise NotAllowed(
            f"Lease {lease_id} holds a part of {resource.name}, and others may hold the rest.",
            hint="Ask for a machine of your own (--exclusive), or ask an operator.",
        )
    return Held(who, resource, lease_id)


_WHOLE = """
    SELECT s.exclusive OR s.slots = r.total_slots FROM leases_share s JOIN leases_resource r ON r.id = s.resource_id
    WHERE s.lease_id = %s"""


def _is_whole(lease_id: int) -> bool:
    return any(whole for (whole,) in rows(_WHOLE, (lease_id,)))


def _resource_of(lease: Lease) -> Resource:
    if lease.resource is None:
        raise NotFound(f"Lease {lease.pk} has no machine (yet).", field="lease")
    return lease.resource


def of_resource(who: Caller, resource_id: int) -> Held:
    """Any resource, for operators. Raises NotFound, NotAllowed."""
    operator_only(who, "do this to a machine that is not leased to them")
    refuse_inside_transaction("This")
    found = Resource.objects.select_related("blueprint").filter(pk=resource_id).first()
    if found is None:
        raise NotFound(f"No resource {resource_id}.", field="resource")
    return Held(who, found, None)


def able(resource: Resource) -> tuple[str, ...]:
    """The names of what can be done to it, without any call outside."""
    try:
        kind = registry.kind(resource.blueprint.kind)
        lacking = kind.lacking(specs.config(kind.name, resource.blueprint.config))
    except DrydockError:
        return ()
    return tuple(name for base, (name, _) in CAPABILITIES.items() if isinstance(kind, base) and base not in lacking)


def refuse_unable(resource: Resource, base: type) -> None:
    """Raises NotSupported where the resource has not the capability."""
    name, words = CAPABILITIES[base]
    can = able(resource)
    if name not in can:
        raise NotSupported(
            f"{words} ({name}) is not supported by {resource.blueprint.kind}.", capability=name,
            hint=f"It supports: {', '.join(can) or 'nothing of the kind'}.",
        )  # fmt: skip


def _switch(held: Held, power: str) -> MachineInfo:
    refuse_unable(held.resource, Powers)
    machine_phases.switch(held.wish("power", {"power": power}, f"Power {power} asked for."))
    return _info(held)


def _reboot(held: Held) -> MachineInfo:
    refuse_unable(held.resource, Reboots)
    machine_phases.ask(held.wish("reboot", {}, "A reboot was asked for."))
    return _info(held)


def _resize(held: Held, disk_gib: int) -> MachineInfo:
    refuse_unable(held.resource, Resizes)
    there = disk_of(held.resource)
    if not max(there, 1) <= disk_gib <= LARGEST_DISK_GIB:
        has = f"It has {there} GiB, and a disk only grows" if there else "A disk has at least 1 GiB"
        raise InvalidRequest(f"{has}; at most {LARGEST_DISK_GIB} are taken.", field="disk_gib")
    if disk_gib > there:
        machine_phases.ask(held.wish("resize", {"disk_gib": disk_gib}, f"A disk of {disk_gib} GiB was asked for."))
    return _info(held)


def disk_of(resource: Resource) -> int:
    """GiB of its boot disk; 0 where it is as large as its image says."""
    said = (resource.facts or {}).get("disk_gib")
    return said if isinstance(said, int) and said else resource.total_disk_mib // 1024


def _change_type(held: Held, type_name: str) -> MachineInfo:
    refuse_unable(held.resource, Retypes)
    wanted = drafts.retyped(held.resource, held.kind, held.config, type_name)
    said = f"From {wanted['from']} to {type_name} was asked for."
    machine_phases.ask(held.wish("retype", wanted, said))
    return _info(held)


def _set_tags(held: Held, tags: Mapping[str, str]) -> MachineInfo:
    refuse_unable(held.resource, Tags)
    _refuse_odd(tags)
    kind, config = held.kind, held.config
    if said := isinstance(kind, Tags) and kind.refused_tags(config, tags):
        raise InvalidRequest(str(said), field="tags")
    machine_phases.ask(held.wish("tag", {"tags": dict(tags)}, f"Tags were set: {', '.join(sorted(tags))}."))
    return _info(held)


def _refuse_odd(tags: Mapping[str, str]) -> None:
    if not tags or len(tags) > _MOST_TAGS:
        raise InvalidRequest(f"Give from 1 to {_MOST_TAGS} tags.", field="tags")
    for name, value in tags.items():
        if not isinstance(value, str) or not 0 < len(name) <= _NAME or len(value) > _VALUE:
            raise InvalidRequest(
                f"A tag is a name of up to {_NAME} characters and a text of up to {_VALUE}.", field=f"tags.{name}"
            )
        if name.lower().startswith(OURS):
            raise InvalidRequest(
                f"Names that begin with {OURS} are ours: they say whose a machine is.", field=f"tags.{name}"
            )


def _console(held: Held) -> ConsoleInfo:
    resource = held.resource
    refuse_unable(resource, Consoles)
    kind = held.kind
    assert isinstance(kind, Consoles)
    view = specs.resource_view(resource)
    record_event(
        "machine.console", "Its console was read.", actor=held.who.actor, resource_id=resource.pk,
        lease_id=held.lease_id,
    )  # fmt: skip
    with hidden(*specs.resource_secrets(view), *_of_leases(resource)):
        try:
            text = redact(_newest(kind.console(view)))
        except DrydockError as error:
            raise Unreachable(redact(f"The console of {resource.name} cannot be read: {error.message}")) from error
    return ConsoleInfo(resource=resource.pk, text=_newest(text), at=rows("SELECT clock_timestamp()")[0][0])


def _of_leases(resource: Resource) -> list[Any]:
    """The secrets of the leases on it: what one of them has written there is nobody else's."""
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
        failure=reading.failure(getattr(row, "failure", None)), **said,
    )  # fmt: skip


_OUTCOMES = ("machine.asked", "machine.done", "machine.failed")
ACTS: Mapping[str, Callable[..., MachineInfo]] = {
    "stop": lambda held: _switch(held, "off"), "start": lambda held: _switch(held, "on"), "reboot": _reboot,
    "resize": _resize, "change-type": _change_type, "tags": _set_tags,
}  # fmt: skip
"""Act -> how it is asked for: `resize` with `disk_gib`, `change-type` with `type_name`, `tags` with `tags`."""


@checked
def act_on_lease(who: Caller, lease_id: int, act: str, **asked: Any) -> MachineInfo:
    """One of `ACTS` by name, on the machine of a lease."""
    known(act)
    return ACTS[act](of_lease(who, lease_id), **asked)


@checked
def act_on_resource(who: Caller, resource_id: int, act: str, **asked: Any) -> MachineInfo:
    """One of `ACTS` by name, on any resource, for operators."""
    known(act)
    return ACTS[act](of_resource(who, resource_id), **asked)


def known(act: str) -> None:
    """Raises InvalidRequest for what is none of `ACTS`."""
    if act not in ACTS:
        raise InvalidRequest(
            f"{act!r} cannot be done to a machine.", field="act", hint=f"There are: {', '.join(ACTS)}."
        )


@checked
def console_of_resource(who: Caller, resource_id: int) -> ConsoleInfo:
    """The console of any resource, for operators. Recorded."""
    return _console(of_resource(who, resource_id))
