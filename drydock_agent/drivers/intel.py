"""Intel's accelerators: QAT, recognized by class and driver, DSA and IAA (`idxd`), and Xeon Phi."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree

VENDOR = "8086"

_QAT_DRIVERS = ("c3xxx", "c4xxx", "c6xx", "d15xx", "dh895xcc", "200xx", "4xxx", "401xx", "402xx", "420xx", "6xxx")

# Devices without a driver are known by id only.
_QAT_IDS_TEXT = """
    37c8 37c9 19e2 19e3 0435 0443 6f54 6f55 18ee 18ef 18a0 18a1 4940 4941 4942 4943 4944 4945 4946 4947
"""

_QAT_IDS = frozenset(_QAT_IDS_TEXT.split())

_IDXD = {"0b25": "dsa", "11fb": "dsa", "1212": "dsa", "0cfe": "iaa", "1216": "iaa"}

_MIC = ("sku", "serialnumber", "flashversion", "state", "memsize", "active_cores", "family", "stepping", "mode")


class Intel:
    """Reports Intel's accelerators other than GPUs, for which the facts of the driver `pci` are enough."""

    name = "intel"
    classes = ("qat", "dsa", "iaa", "coprocessor")
    paths = (
        f"{pci.FUNCTIONS}/*/qat/state", f"{pci.FUNCTIONS}/*/qat/cfg_services", "sys/bus/dsa/devices/*",
        *(f"sys/bus/dsa/devices/*/{one}" for one in ("state", "type", "max_work_queues", "max_engines")),
        *(f"{pci.FUNCTIONS}/*/mic/mic*/{one}" for one in _MIC),
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the accelerators."""
        queues = _work_queues(tree)
        devices = []
        for address, (vendor, device, pci_class) in pci.functions(tree).items():
            if vendor != VENDOR:
                continue
            driver, kind = pci.bound_to(tree, address), pci.kind_of(pci_class)
            if device in _IDXD or driver == "idxd":
                devices.append(_idxd(tree, address, _IDXD.get(device, "dsa"), driver, queues))
            elif device in _QAT_IDS or (kind == "coprocessor" and driver.removesuffix("vf") in _QAT_DRIVERS):
                devices.append(_qat(tree, address, device, driver))
            elif kind == "coprocessor" and (mics := tree.names(f"{pci.FUNCTIONS}/{address}/mic")):
                devices.append(_mic(tree, address, mics[0]))
        return Findings(devices=tuple(devices))


def _qat(tree: Tree, address: str, device: str, driver: str) -> Device:
    folder = f"{pci.FUNCTIONS}/{address}"
    if tree.exists(f"{folder}/physfn") or pci.is_vf_by_id(VENDOR, device, driver):
        return Device(id=address, device_class="vf", attributes={"function": "qat"})
    state, services = known(tree.read(f"{folder}/qat/state")), known(tree.read(f"{folder}/qat/cfg_services"))
    attributes: dict[str, Value] = {
        key: text for key, text in (("qat_state", state), ("services", services)) if text
    }  # fmt: skip
    made = Device(id=address, device_class="qat", role="lease_candidate", attributes=attributes)
    if state and state != "up" and driver.removesuffix("vf") in _QAT_DRIVERS:
        return _replaced(made, Readiness.SETUP_REQUIRED, f"The QAT device is {state}. Its services have to be started.")
    if driver in _QAT_DRIVERS:
        return _replaced(made, Readiness.READY, f"The kernel driver {driver} is bound to the device.")
    return made


def _replaced(device: Device, readiness: Readiness, reason: str) -> Device:
    return dataclasses.replace(device, readiness=readiness, reason=reason)


def _work_queues(tree: Tree) -> dict[str, list[str]]:
    """Return the enabled user work queues by idxd device."""
    folder = "sys/bus/dsa/devices"
    found: dict[str, list[str]] = {}
    for name in tree.names(folder):
        texts = [tree.read(f"{folder}/{name}/{one}") for one in ("state", "type")] if name.startswith("wq") else []
        if texts == ["enabled", "user"]:
            device = (tree.link(f"{folder}/{name}") or "").split("/")[-2:-1]
            found.setdefault("".join(device), []).append(name)
    return found


def _idxd(tree: Tree, address: str, device_class: str, driver: str, queues: dict[str, list[str]]) -> Device:
    folder = "sys/bus/dsa/devices"
    names = [one for one in tree.names(folder) if pci.owner_of(tree.link(f"{folder}/{one}")) == address]
    name = next((one for one in names if one.startswith(("dsa", "iax"))), "")
    attributes: dict[str, Value] = {"idxd": name} if name else {}
    for key in ("max_work_queues", "max_engines"):
        if (number := tree.integer(f"{folder}/{name}/{key}")) is not None:
            attributes[key] = number
    enabled = sorted(queues.get(name, []), key=pci.natural)
    if enabled:
        attributes["work_queues"] = tuple(enabled)
    made = Device(
        id=address, device_class=device_class, role="lease_candidate", attributes=attributes,
        nodes=tuple(f"/dev/{'iax' if device_class == 'iaa' else 'dsa'}/{one}" for one in enabled),
    )  # fmt: skip
    if driver in ("vfio-pci", "pci-stub"):
        return _replaced(made, Readiness.READY, f"The device is bound to {driver}, for use in a guest.")
    if driver != "idxd":
        return _replaced(made, Readiness.SETUP_REQUIRED, "The kernel driver idxd is not bound to the device.")
    if tree.read(f"{folder}/{name}/state") != "enabled":
        return _replaced(made, Readiness.SETUP_REQUIRED, f"The device {name or address} is not enabled (accel-config).")
    if not enabled:
        return _replaced(made, Readiness.SETUP_REQUIRED, "No work queue of type user is enabled (accel-config).")
    return _replaced(made, Readiness.READY, f"{len(enabled)} work queues are enabled.")


def _mic(tree: Tree, address: str, name: str) -> Device:
    folder = f"{pci.FUNCTIONS}/{address}/mic/{name}"
    values = {key: known(tree.read(f"{folder}/{key}")) for key in _MIC}

    def number(key: str) -> int | None:
        try:
            return int(values[key], 16)
        except ValueError:
            return None

    attributes: dict[str, Value] = {key: values[key] for key in ("family", "stepping", "state", "mode") if values[key]}
    if (cores := number("active_cores")) is not None:
        attributes["active_cores"] = cores
    memory, serial, state = number("memsize"), identity(values["serialnumber"]), values["state"]
    failed = state in ("lost", "node lost")
    ready = state == "online"
    return Device(
        id=address, name=f"Xeon Phi {values['sku']}".strip(), memory_mib=memory >> 10 if memory else None,
        identities={"serial": serial} if serial else {}, attributes=attributes, nodes=(f"/dev/{name}",),
        firmware={"flash": values["flashversion"]} if values["flashversion"] else {},
        health=Health.FAILED if failed else Health.OK if ready else None,
        problems=(f"The coprocessor is {state}.",) if failed else (),
        readiness=Readiness.READY if ready else Readiness.SETUP_REQUIRED,
        reason=f"The coprocessor is {state or 'in an unknown state'}{'' if ready else '; it has to be booted'}.",
    )  # fmt: skip
