"""Network cards: their interfaces and RDMA devices, and BlueField DPUs, including those in recovery mode."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree

_NET, _RDMA = "sys/class/net", "sys/class/infiniband"

_NET_FILES = ("address", "addr_assign_type", "dev_port", "operstate", "speed")

_MAC = re.compile(r"\A[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")

_BLUEFIELD = {"a2d2": "BlueField", "a2d6": "BlueField-2", "a2d9": "BlueField-3 Lx", "a2dc": "BlueField-3",
              "a2df": "BlueField-4"}  # fmt: skip

# A DPU whose firmware is lost shows these instead of its own ids.
_RECOVERY = ("0211", "0214", "0215", "021a", "021b", "021c", "021d", "0220", "0221")

_MANAGEMENT = ("c2d2", "c2d3", "c2d4", "c2d5", "c2d6")


class Network:
    """Reports network cards and DPUs."""

    name = "network"
    classes = ("nic", "vf")
    paths = (
        f"{_NET}/*", f"{_NET}/*/upper_*", *(f"{_NET}/*/{one}" for one in _NET_FILES),
        f"{_RDMA}/*", f"{_RDMA}/*/ports/*/link_layer", f"{_RDMA}/*/ports/*/state",
        *(f"{_RDMA}/*/{one}" for one in ("fw_ver", "board_id", "node_guid", "hca_type")),
        "proc/net/route", "proc/net/ipv6_route",
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the network cards."""
        interfaces = _by_owner(tree, _NET)
        rdma = _by_owner(tree, _RDMA)
        busy = _default_routes(tree)
        devices = []
        for address, (vendor, device, _) in pci.functions(tree).items():
            if address in interfaces:
                devices.append(_nic(tree, address, interfaces[address], busy))
            if address in rdma:
                devices.append(_rdma(tree, address, rdma[address]))
            if vendor == "15b3" and (device in _BLUEFIELD or device in _RECOVERY or device in _MANAGEMENT):
                devices.append(_bluefield(address, device))
        return Findings(devices=tuple(devices))


def _by_owner(tree: Tree, folder: str) -> dict[str, list[str]]:
    """Return the names in a class folder by the PCI function that they belong to. Virtual ones belong to none."""
    found: dict[str, list[str]] = {}
    for name in sorted(tree.names(folder), key=pci.natural):
        if owner := pci.owner_of(tree.link(f"{folder}/{name}")):
            found.setdefault(owner, []).append(name)
    return found


def _default_routes(tree: Tree) -> set[str]:
    """Return the interfaces that the host itself needs: those of its default routes, and all below them."""
    used = set()
    for line in (tree.read("proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            used.add(fields[0])
    for line in (tree.read("proc/net/ipv6_route") or "").splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[1] == "00" and not int(fields[0] or "0", 16) and fields[9] != "lo":
            used.add(fields[9])
    lower: dict[str, set[str]] = {}
    for name in tree.names(_NET):
        for upper in tree.names(f"{_NET}/{name}"):
            if upper.startswith("upper_"):
                lower.setdefault(upper.removeprefix("upper_"), set()).add(name)
    waiting = list(used)
    while waiting:
        new = lower.get(waiting.pop(), set()) - used
        used |= new
        waiting += new
    return used


def _nic(tree: Tree, address: str, names: list[str], busy: set[str]) -> Device:
    identities, speeds = {}, []
    for name in names:
        folder = f"{_NET}/{name}"
        mac = (tree.read(f"{folder}/address") or "").lower()
        # 0: the address that the card came with. A bond or a person sets another one.
        if _MAC.match(mac) and tree.read(f"{folder}/addr_assign_type") == "0" and identity(mac):
            port = tree.integer(f"{folder}/dev_port") or 0
            identities["mac" if not port else f"mac_{port}"] = mac
        speed = tree.integer(f"{folder}/speed")
        if speed is not None and 0 < speed < 10_000_000:
            speeds.append(speed)
    attributes: dict[str, Value] = {"interfaces": tuple(names)}
    if speeds:
        attributes["speed_mbits"] = max(speeds)
    up = tuple(name for name in names if tree.read(f"{_NET}/{name}/operstate") == "up")
    if up:
        attributes["up"] = up
    used = sorted(set(names) & busy)
    if not used:
        return Device(id=address, identities=identities, attributes=attributes)
    attributes["default_route"] = True
    return Device(
        id=address, identities=identities, attributes=attributes, readiness=Readiness.UNSUPPORTED,
        reason=f"The host's default route uses {used[0]}.",
    )  # fmt: skip


def _rdma(tree: Tree, address: str, names: list[str]) -> Device:
    folder = f"{_RDMA}/{names[0]}"
    ports = sorted(tree.names(f"{folder}/ports"), key=pci.natural)
    layers = {known(tree.read(f"{folder}/ports/{one}/link_layer")) for one in ports} - {""}
    states = tuple(known(tree.read(f"{folder}/ports/{one}/state")) for one in ports)
    attributes: dict[str, Value] = {"rdma": tuple(names)}
    if layers:
        attributes["link_layer"] = " ".join(sorted(layers))
    if any(states):
        attributes["port_states"] = states
    for key in ("board_id", "hca_type"):
        if text := known(tree.read(f"{folder}/{key}")):
            attributes[key] = text
    guid, firmware = identity(tree.read(f"{folder}/node_guid")), known(tree.read(f"{folder}/fw_ver"))
    return Device(
        id=address, attributes=attributes, identities={"guid": guid} if guid else {},
        firmware={"nic": firmware} if firmware else {},
    )  # fmt: skip


def _bluefield(address: str, device: str) -> Device:
    if device in _RECOVERY:
        sentence = "The DPU is in recovery. Install its firmware, then switch the machine off and on."
        return Device(
            id=address, attributes={"dpu": "recovery"}, health=Health.FAILED, problems=("The DPU is in recovery.",),
            readiness=Readiness.SETUP_REQUIRED, reason=sentence,
        )  # fmt: skip
    if device in _MANAGEMENT:
        return Device(id=address, attributes={"dpu": "management"})
    return Device(id=address, attributes={"dpu": _BLUEFIELD[device]})
