"""The health of an accelerator, from what is wrong with it now and from the errors since a reference.

Errors only ever rise, so they are compared: with the reference of the resource, which is set when Drydock first checks
the device and when an operator reports a repair, and with that of a lease, which is set when the lease begins. A
restart of the host and a reset of the device begin the count again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blueprints.accelerators import xids
from blueprints.answers import Health, HealthState, Json
from drydock_agent import Device, Hardware
from drydock_agent.drivers.nvidia import NO_ACTION
from drydock_agent.facts import Health as Condition

_WORST: tuple[HealthState, ...] = ("ok", "degraded", "failed")

_STATES: Mapping[Condition, HealthState] = {
    Condition.OK: "ok", Condition.DEGRADED: "degraded", Condition.FAILED: "failed",
}  # fmt: skip

_COUNTED: Mapping[str, tuple[HealthState, str]] = {
    "pcie_fatal": ("failed", "{} fatal PCIe errors."),
    "pcie_nonfatal": ("degraded", "{} uncorrectable PCIe errors."),
    "media_errors": ("degraded", "{} errors of the disk's media."),
}
"""Counters whose rise says something, with the health and a sentence.

Uncorrectable memory errors are conditions of a device, because they count only until its next reset. Errors that were
corrected, and memory that was taken out of use, are recorded and change nothing.
"""

_LIFELONG = ("media_errors", "remapped_rows", "retired_pages")
"""Counters that go on after a restart of the host."""


_DRIVERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("pci", "platform", "nvidia", "amd"), "gpu_slice": ("pci", "platform", "nvidia"),
    "nvme": ("pci", "platform", "nvme"), "fpga": ("pci", "platform", "fpga"),
    **dict.fromkeys(("nic", "vf", "qat", "dsa", "iaa"), ("pci", "platform")),
}  # fmt: skip
"""The drivers that report the errors of a class of devices. Other classes are read by all drivers."""


class Finding(NamedTuple):
    """Something that is wrong with a device."""

    state: HealthState
    sentence: str
    repair: xids.Repair = ""


def drivers_of(device_class: str) -> tuple[str, ...]:
    """Return the names of the drivers that report the errors of a class of devices; none means all."""
    return _DRIVERS.get(device_class, ())


def reference(found: Hardware, id: str) -> Json:
    """Return the errors of a device, and of the one that it is part of, for a later comparison."""
    devices = _concerned(found, id)
    return {
        "boot": _boot(found),
        "counters": {f"{one.id} {name}": count for one in devices for name, count in one.counters.items()},
        "errors": {f"{one.id} {error.code} {error.part}": error.at for one in devices for error in one.errors},
    }


def conditions(found: Hardware, id: str) -> list[Finding]:
    """Return what is wrong with a device now, whatever happened before."""
    return [
        Finding(state, sentence)
        for one in _concerned(found, id)
        if (state := _state(one.health)) != "ok"
        for sentence in (one.problems or (f"{one.id} reports that it is {state}.",))
    ]


def since(found: Hardware, id: str, before: Json) -> list[Finding]:
    """Return what the errors since a reference say about a device."""
    same_boot = before.get("boot", "") == _boot(found)
    return [
        finding
        for one in _concerned(found, id)
        for finding in (*_risen(one, before, same_boot), *_logged(one, id, before, same_boot))
    ]


def judged(findings: Sequence[Finding]) -> Health:
    """Return the worst state of the findings, with the sentences that belong to it."""
    state = max((one.state for one in findings), key=_WORST.index, default=_WORST[0])
    sentences = dict.fromkeys(one.sentence for one in findings if one.state == state and state != "ok")
    return Health(state=state, reason=" ".join(sentences))


def repairs(findings: Iterable[Finding]) -> frozenset[xids.Repair]:
    """Return what has to be done with a GPU, apart from nothing."""
    return frozenset(one.repair for one in findings if one.repair)


def _concerned(found: Hardware, id: str) -> list[Device]:
    """Return a device and the whole that it is part of, because a slice or VF works only as well as its card."""
    own = found.device(id)
    whole = found.device(own.part_of) if own is not None else None
    return [one for one in (own, whole) if one is not None]


def _boot(found: Hardware) -> Any:
    return found.host.attributes.get("boot_id", "")


def _state(condition: Condition | None) -> HealthState:
    return _STATES[condition] if condition is not None else "ok"


def _risen(device: Device, before: Json, same_boot: bool) -> Iterator[Finding]:
    for name, (state, sentence) in _COUNTED.items():
        now, then = device.counters.get(name, 0), before.get("counters", {}).get(f"{device.id} {name}", 0)
        # A count that has fallen began again.
        risen = now - (then if now >= then and (same_boot or name in _LIFELONG) else 0)
        if risen > 0:
            yield Finding(state, sentence.format(risen))


def _logged(device: Device, id: str, before: Json, same_boot: bool) -> Iterator[Finding]:
    known: Mapping[str, float] = before.get("errors", {}) if same_boot else {}
    for error in device.errors:
        if error.part and not _concerns(id, device.id, error.part):
            continue
        if error.at <= known.get(f"{device.id} {error.code} {error.part}", -1.0):
            continue
        state, sentence, repair = xids.verdict(error.code)
        if state == "failed" and device.attributes.get("recovery_action") == NO_ACTION:
            state, sentence, repair = "degraded", f"{sentence} The driver reports that nothing has to be done.", ""
        if state != "ok":
            yield Finding(state, sentence, repair)


def _concerns(id: str, gpu: str, part: str) -> bool:
    """Return whether an error of a GPU instance concerns a device: the GPU itself, or a slice of that instance."""
    return id == gpu or f"{id}-".startswith(f"{gpu}/{part}-")
