"""The hardware of a host as its BMC describes it: facts, attributes, and comparison with the host itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from blueprints.accounts.access import shell
from blueprints.answers import Answer, Health, Json, Ready
from blueprints.bmc.inspection import whole
from blueprints.bmc.values import Inventory
from blueprints.hostshell import NeedsOperator, told
from blueprints.identities import is_placeholder, real
from blueprints.specs import Spec

ATTRIBUTES = ("vendor", "model", "serial", "bios_version", "bmc_version")
_VALUES = ("vendor", "model", "serial", "uuid", "bios_version", "bmc_version", "cpus", "threads", "memory_mib")
_LISTS = {
    "disks": (("serial", "name"), ("model", "size_bytes")),
    "nics": (("mac", "name"), ("speed_mbps",)),
    "firmware": (("component",), ("version",)),
    "devices": (("serial", "name"), ("model",)),
}
"""For each list of an inventory: the fields that identify an entry, and those whose changes are told."""
_MEMORY = 0.9
"""Part of the installed memory that a kernel should at least see; the rest is for firmware and itself."""

IN_BAND = r"""
for name in product_serial product_uuid chassis_serial; do
  printf '%s=%s\n' "$name" "$(head -n 1 "/sys/class/dmi/id/$name" 2>/dev/null)"
done
for each in /sys/class/net/*; do
  [ ! -e "$each/device" ] || printf 'mac=%s\n' "$(cat "$each/address" 2>/dev/null)"
done
sed -n 's/^MemTotal: *\([0-9][0-9]*\) kB/memory_kib=\1/p' /proc/meminfo
"""
"""Prints what the kernel knows about its machine, as name=value. Only root can read serial numbers and the UUID."""


def facts_of(found: Inventory) -> Json:
    """Return the facts that are kept about the hardware."""
    kept: Json = json.loads(json.dumps(asdict(found)))
    kept.pop("identities")
    return {"hardware": kept}


def attributes_of(found: Inventory) -> Json:
    """Return the attributes that the BMC knows."""
    return {name: getattr(found, name) for name in ATTRIBUTES if getattr(found, name)}


def said_of(found: Inventory) -> Health | None:
    """Return the health of the machine as the BMC summarizes it; None if it does not."""
    reasons = {
        "degraded": "The BMC reports the machine as degraded.",
        "failed": "The BMC reports the machine as failed.",
    }
    return Health(state=found.health, reason=reasons.get(found.health, "")) if found.health else None


def serials(found: Inventory) -> set[str]:
    """Return the serial number and the service tag, which some vendors print on the machine instead."""
    return {text.casefold() for text in (found.serial, found.sku) if text and not is_placeholder(text)}


def same_uuid(one: str, other: str) -> bool:
    """Return whether two UUIDs are the same, also if one has its first three fields in the other byte order."""
    try:
        a, b = uuid.UUID(one), uuid.UUID(other)
    except ValueError:
        return False
    return b in (a, uuid.UUID(bytes_le=a.bytes))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each change between two inventories in the form of facts."""
    found = [
        f"{name} changed from {before.get(name) or 'unknown'} to {after.get(name) or 'unknown'}."
        for name in _VALUES
        if before.get(name) != after.get(name)
    ]
    for name in _LISTS:
        found += _changes(name, before.get(name) or [], after.get(name) or [])
    return found


def _changes(name: str, before: list[Any], after: list[Any]) -> Iterator[str]:
    keys, told_of = _LISTS[name]
    was, now = _by_key(before, keys), _by_key(after, keys)
    yield from (f"{name}: {key} is gone." for key in sorted(was.keys() - now.keys()))
    yield from (f"{name}: {key} is new." for key in sorted(now.keys() - was.keys()))
    for key in sorted(was.keys() & now.keys()):
        for field in told_of:
            if was[key].get(field) != now[key].get(field):
                yield f"{name}: {field} of {key} changed from {was[key].get(field)} to {now[key].get(field)}."


def _by_key(entries: list[Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {next((str(one[key]) for key in keys if one.get(key)), "?"): one for one in entries}


@told
def compare(spec: Spec, memo: Json) -> Answer:
    """Compare what the host's kernel says about its machine with what the BMC says.

    Another serial number or UUID means that the BMC controls a different machine.
    """
    found = compared(spec, _in_band(spec))
    return Ready(facts=found, log="\n".join(found["differences"]))


def compared(spec: Spec, in_band: str) -> Json:
    """Return the differences between what the script has printed and what the BMC says, as a fact.

    Raises NeedsOperator if they prove another machine, unless the blueprint only reports that.
    """
    known = spec.resource.facts.get("hardware", {})
    grave, others = contradictions(known, read_in_band(in_band))
    if grave and spec.config.compare == "require":
        raise NeedsOperator(
            f"The host is another machine than the one that its BMC controls: {' '.join(grave)}",
            hint="Correct the address of the host or of its BMC, or set `compare: report` in the blueprint.",
        )
    return {"differences": [*grave, *others]}


def _in_band(spec: Spec) -> str:
    there = shell(spec)
    return there.run(IN_BAND) if spec.config.accounts == "shared" else there.as_root(IN_BAND)


def read_in_band(text: str) -> Json:
    """Return the values that the script has printed, without placeholders."""
    found: Json = {"macs": []}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "mac":
            found["macs"] += [one.value for one in real({"mac": value.strip()})]
        elif value.strip() and not is_placeholder(value.strip()):
            found[name] = value.strip()
    return found


def contradictions(known: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the differences that prove another machine, and all others. Unknown values are not compared."""
    grave, others = [], []
    by_bmc = {str(known[name]).casefold() for name in ("serial", "sku") if known.get(name)}
    by_host = {str(own[name]).casefold() for name in ("product_serial", "chassis_serial") if own.get(name)}
    if by_bmc and by_host and not by_bmc & by_host:
        by_kernel, by_controller = _all(own, "product_serial", "chassis_serial"), _all(known, "serial", "sku")
        grave.append(f"Its serial number is {by_kernel}, the BMC says {by_controller}.")
    if known.get("uuid") and own.get("product_uuid") and not same_uuid(known["uuid"], own["product_uuid"]):
        grave.append(f"Its UUID is {own['product_uuid']}, the BMC says {known['uuid']}.")
    memory, seen = known.get("memory_mib"), (whole(own.get("memory_kib")) or 0) // 1024
    if memory and seen and not _MEMORY * memory <= seen <= memory:
        others.append(f"The kernel sees {seen} MiB of memory; the BMC says {memory} MiB.")
    missing = sorted({one["mac"] for one in known.get("nics") or [] if one.get("mac")} - set(own["macs"]))
    if missing:
        others.append(f"The kernel does not see these network ports: {', '.join(missing)}.")
    return grave, others


def _all(values: Mapping[str, Any], *names: str) -> str:
    return " or ".join(dict.fromkeys(str(values[name]) for name in names if values.get(name)))
