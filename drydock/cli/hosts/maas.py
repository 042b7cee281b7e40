"""Hosts from MAAS: the output of MACHINES and of POWER.

The fields are those of MAAS's machines API (`maasserver/api/machines.py`). The first command does not print how BMCs
are reached; the second prints an object of power parameters by system id, for administrators only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drydock.cli.hosts import bmcs
from drydock.cli.hosts.rows import Row, Unusable, credential, mapping

MACHINES = "maas $PROFILE machines read"
POWER = "maas $PROFILE machines power-parameters"
_FREE = frozenset({"new", "ready", "broken", "retired", "failed commissioning", "failed testing", "failed deployment"})
"""Names of the statuses in which nobody uses a machine, and MAAS does not work on it."""
_PLACES = ("rack", "position")

Object = Mapping[str, Any]


def is_machine(content: Object) -> bool:
    """Return whether an object is a machine of MAAS."""
    return "system_id" in content and "power_type" in content


def read(machines: Sequence[Object], power: Object | None, *, in_use: bool) -> list[Row]:
    """Return the hosts for these machines. `in_use` accepts machines that somebody uses."""
    return [_row(number, machine, power, in_use=in_use) for number, machine in enumerate(machines, 1)]


def _row(number: int, machine: Object, power: Object | None, *, in_use: bool) -> Row:
    name = str(machine.get("hostname") or machine.get("system_id"))
    row = Row(where=f"machine {number}", name=name, registration={"name": name})
    status = str(machine.get("status_name") or "").lower()
    if (status not in _FREE or machine.get("locked") is True) and not in_use:
        word = f"{status}, and locked" if machine.get("locked") is True else status or "in an unknown status"
        row.refuse(f"it is {word} in MAAS; release it in MAAS first, or import it with --in-use")
    _add_power(row, machine, power)
    about = mapping(machine.get("hardware_info"))
    row.name_by("serial", about.get("system_serial"))
    row.name_by("uuid", machine.get("hardware_uuid"))
    if attributes := _attributes(machine):
        row.registration["attributes"] = attributes
    tags = machine.get("tag_names")
    row.add_traits(tags if isinstance(tags, list) else ())
    addresses = machine.get("ip_addresses")
    if isinstance(addresses, list) and addresses:
        row.registration["address"] = str(addresses[0])
    ports = machine.get("interface_set")
    found = [mapping(one).get("mac_address") for one in ports] if isinstance(ports, list) else []
    row.macs = tuple(dict.fromkeys(str(mac).lower() for mac in found if mac))
    return row


def _add_power(row: Row, machine: Object, power: Object | None) -> None:
    """Set the BMC and its login."""
    kind = str(machine.get("power_type") or "")
    given = mapping((power or {}).get(str(machine.get("system_id"))))
    if power is None:
        row.refuse(f"`{MACHINES}` does not print how BMCs are reached; add --power FILE with the output of `{POWER}`")
    elif not given:
        row.refuse(f"the file of power parameters does not have its system id {machine.get('system_id')}")
    try:
        row.registration["bmc"] = _bmc(kind, given)
    except Unusable as error:
        row.refuse(str(error))
    if login := credential(given.get("power_user"), given.get("power_pass")):
        row.registration["credential"] = login


def _bmc(kind: str, given: Object) -> dict[str, Any]:
    if kind == "redfish":
        return bmcs.redfish(given.get("power_address"), given.get("node_id"))
    if kind == "ipmi":
        return bmcs.ipmi(given.get("power_address"), None, given.get("cipher_suite_id"), given.get("privilege_level"))
    raise Unusable(
        f"its power type {kind or 'none'!r} is neither redfish nor ipmi; register it by CSV with bmc.driver and "
        "bmc.address"
    )


def _attributes(machine: Object) -> dict[str, str]:
    found = {"arch": str(machine.get("architecture") or "").partition("/")[0]}
    zone = str(mapping(machine.get("zone")).get("name") or "")
    found["zone"] = "" if zone == "default" else zone
    noted = mapping(machine.get("owner_data"))
    found |= {name: str(noted.get(name) or "") for name in _PLACES}
    return {name: value for name, value in found.items() if value}
