"""Hosts from Ironic: the output of NODES and, optionally, of PORTS.

The columns are those of python-ironicclient (`ironicclient/v1/resource_fields.py`), and the names in `Driver Info` are
those of Ironic's drivers redfish and ipmitool. The API's spelling of the columns, such as `driver_info`, is read too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from drydock.cli.hosts import bmcs
from drydock.cli.hosts.rows import Row, Unusable, credential, is_masked, mapping

NODES = "openstack baremetal node list --long -f json"
PORTS = "openstack baremetal port list --long -f json"
_FREE = frozenset({"available", "manageable", "enroll", "clean failed", "inspect failed", "adopt failed", ""})
"""Provisioning states in which nobody uses a node, and Ironic does not work on it."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@,+-]{0,99}")
"""Names that a registration accepts for a switch or its port."""
_UNTIL_FREE = "release it in Ironic first, or import it with --in-use"

Object = Mapping[str, Any]


def is_node(content: Object) -> bool:
    """Return whether an object is a node of Ironic."""
    return _of(content, "UUID") != "" and ("Driver Info" in content or "driver_info" in content)


def read(nodes: Sequence[Object], ports: Sequence[Object], *, in_use: bool) -> list[Row]:
    """Return the hosts for these nodes. `in_use` accepts nodes that somebody uses."""
    by_node: dict[str, list[Object]] = defaultdict(list)
    for port in ports:
        by_node[str(_of(port, "Node UUID"))].append(port)
    return [
        _row(number, node, by_node.get(str(_of(node, "UUID")), []), in_use=in_use)
        for number, node in enumerate(nodes, 1)
    ]


def _row(number: int, node: Object, ports: Sequence[Object], *, in_use: bool) -> Row:
    name = str(_of(node, "Name") or _of(node, "UUID"))
    row = Row(where=f"node {number}", name=name, registration={"name": name})
    state = str(_of(node, "Provisioning State", "provision_state") or "").lower()
    if not in_use and (state not in _FREE or _of(node, "Instance UUID")):
        word = state if state not in _FREE else f"{state or 'free'}, with an instance,"
        row.refuse(f"it is {word} in Ironic; {_UNTIL_FREE}")
    given = mapping(_of(node, "Driver Info"))
    try:
        row.registration["bmc"] = _bmc(given, str(_of(node, "Driver")))
    except Unusable as error:
        row.refuse(str(error))
    _login(row, given)
    about = mapping(_of(node, "Properties"))
    if arch := about.get("cpu_arch"):
        row.registration["attributes"] = {"arch": str(arch)}
    traits = _of(node, "Traits")
    row.add_traits(traits if isinstance(traits, list) else ())
    row.macs = tuple(str(_of(port, "Address")).lower() for port in ports)
    row.registration["ports"] = [found for port in ports if (found := _port(row, port))]
    if _of(node, "Maintenance") is True:
        row.notes.append(f"it is in maintenance: {_of(node, 'Maintenance Reason') or 'no reason given'}"[:300])
    return row


def _of(content: Object, label: str, name: str = "") -> Any:
    """Return a column by its label, or by its name in the API."""
    found = content.get(label, content.get(name or label.lower().replace(" ", "_")))
    return "" if found is None else found


def _bmc(given: Object, driver: str) -> dict[str, Any]:
    if given.get("redfish_address"):
        return bmcs.redfish(given["redfish_address"], given.get("redfish_system_id"))
    if given.get("ipmi_address"):
        return bmcs.ipmi(
            given["ipmi_address"], given.get("ipmi_port"), given.get("ipmi_cipher_suite"), given.get("ipmi_priv_level")
        )
    raise Unusable(
        f"its driver info has neither redfish_address nor ipmi_address (driver {driver or 'unknown'}); register it by "
        "CSV with bmc.driver and bmc.address"
    )


def _login(row: Row, given: Object) -> None:
    kind = "redfish" if given.get("redfish_address") else "ipmi"
    user, password = given.get(f"{kind}_username"), given.get(f"{kind}_password")
    if found := credential(user, password):
        row.registration["credential"] = found
    elif is_masked(password):
        row.notes.append("the password of its BMC is masked; the credential of the blueprint is used")


def _port(row: Row, port: Object) -> dict[str, str] | None:
    """Return the switch port to which a port is connected. None if Ironic does not know it."""
    link = mapping(_of(port, "Local Link Connection"))
    found = {
        "mac": str(_of(port, "Address")).lower(), "switch": str(link.get("switch_info") or link.get("switch_id") or ""),
        "port": str(link.get("port_id") or ""),
    }  # fmt: skip
    if not found["switch"] or not found["port"]:
        return None
    if not all(_WORD.fullmatch(found[name]) for name in ("switch", "port")):
        row.notes.append(f"the switch port of {found['mac']} was left out, because its name has unusual characters")
        return None
    return found
