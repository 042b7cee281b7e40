"""NVMe disks: model, serial number, size, state, and whether the host itself uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import Device, Health, Readiness, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree

_CONTROLLER = f"{pci.FUNCTIONS}/*/nvme/nvme*"

_NAMESPACE = re.compile(r"\Anvme\d+(?:c\d+)?n\d+\Z")

_OLD = f"{pci.FUNCTIONS}/*/block/nvme*"


class Nvme:
    """Reports NVMe disks."""

    name = "nvme"
    classes = ("nvme",)
    paths = (
        *(f"{_CONTROLLER}/{one}" for one in ("model", "serial", "firmware_rev", "state", "subsysnqn", "cntlid")),
        *(f"{_CONTROLLER}/nvme*/{one}" for one in ("size", "holders/*", "nvme*/holders/*")),
        *(f"{_OLD}/{one}" for one in ("size", "holders/*", "nvme*/holders/*")), "proc/self/mounts", "proc/swaps",
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the disks."""
        mounts = _mounts(tree)
        found = []
        for address, ids in pci.functions(tree).items():
            if pci.kind_of(ids.pci_class) == "nvme":
                found.append(_disk(tree, address, mounts))
        return Findings(devices=tuple(found))


def _mounts(tree: Tree) -> dict[str, str]:
    """Return where block devices are mounted, by their names without /dev/."""
    lines = [line.split() for line in (tree.read("proc/self/mounts") or "").splitlines()]
    found = {one[0][5:]: f"mounted at {one[1]}" for one in lines if len(one) > 1 and one[0].startswith("/dev/")}
    swaps = [line.split() for line in (tree.read("proc/swaps") or "").splitlines()[1:]]
    return found | {one[0][5:]: "swap space" for one in swaps if one and one[0].startswith("/dev/")}


def _disk(tree: Tree, address: str, mounts: dict[str, str]) -> Device:
    folder = f"{pci.FUNCTIONS}/{address}"
    controllers = [one for one in tree.names(f"{folder}/nvme") if re.fullmatch(r"nvme\d+", one)]
    controller = f"{folder}/nvme/{controllers[0]}" if controllers else ""
    places = (
        {one: f"{controller}/{one}" for one in tree.names(controller) if _NAMESPACE.match(one)} if controller else {}
    )
    places |= {one: f"{folder}/block/{one}" for one in tree.names(f"{folder}/block") if _NAMESPACE.match(one)}
    values = {
        key: known(tree.read(f"{controller}/{key}")) if controller else ""
        for key in ("model", "serial", "firmware_rev", "state", "subsysnqn")
    }
    sizes = [tree.integer(f"{place}/size") for place in places.values()]
    # The kernel counts in sectors of 512 bytes, whatever the disk has.
    total = sum(size for size in sizes if size) * 512 >> 20
    attributes: dict[str, Value] = {"namespaces": tuple(sorted(places, key=pci.natural))} if places else {}
    if total:
        attributes["size_mib"] = total
    state = values["state"]
    if state:
        attributes["state"] = state
    serial = identity(values["serial"])
    problems = (f"The controller is {state}.",) if state not in ("", "live") else ()
    uses = _uses(tree, places, mounts)
    if uses:
        attributes["used_by_host"] = tuple(uses)
    made: dict[str, Readiness | str] = {}
    if uses:
        made = {"readiness": Readiness.UNSUPPORTED, "reason": f"The host itself uses the disk: {uses[0]}."}
    elif problems:
        made = {"readiness": Readiness.REBOOT_REQUIRED, "reason": problems[0]}
    return Device(
        id=address, name=values["model"], identities={"serial": serial} if serial else {}, attributes=attributes,
        firmware={"nvme": values["firmware_rev"]} if values["firmware_rev"] else {}, problems=problems,
        nodes=tuple(f"/dev/{one}" for one in places),
        health=Health.FAILED if problems else Health.OK if state else None,
        readiness=Readiness(made["readiness"]) if made else None, reason=str(made.get("reason", "")),
    )  # fmt: skip


def _uses(tree: Tree, places: dict[str, str], mounts: dict[str, str]) -> list[str]:
    """Return what the host does with a disk: file systems, swap space, volumes on top of it."""
    found = []
    for name, place in sorted(places.items()):
        parts = [one for one in tree.names(place) if re.fullmatch(re.escape(name) + r"p\d+", one)]
        # With multipath a path is nvme0c0n1, while the disk that is mounted is nvme0n1.
        shown = re.sub(r"c\d+n", "n", name)
        for block, use in sorted(mounts.items()):
            if block == shown or re.fullmatch(re.escape(shown) + r"p\d+", block):
                found.append(f"{block} is {use}")
        for one in (place, *(f"{place}/{part}" for part in parts)):
            found += [f"{one.rpartition('/')[2]} is part of {holder}" for holder in tree.names(f"{one}/holders")]
    return found
