"""NVMe disks: model, serial number, size, state, and whether the host itself uses them."""

from __future__ import annotations

import json
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


SMART = "nvme-smart"
"""The tool that reads the health log of each disk: `nvme smart-log` of nvme-cli, which needs root."""

_READ_SMART = """
command -v nvme >/dev/null 2>&1 || exit 0
as_root=
[ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && as_root='sudo -n'; }
count=0 code=0
for one in /sys/class/nvme/nvme*; do
  read -r state <"$one/state" && [ "$state" = live ] || continue
  count=$((count + 1)); [ $count -le 128 ] || break
  log=$($as_root nvme smart-log -o json "/dev/${one##*/}" 2>/dev/null) || { code=77; continue; }
  printf '= %s\\n%s\\n' "${one##*/}" "$log"
done
exit $code
"""

_WARNINGS = (
    (0x04, True, "The disk reports that it is no longer reliable."),
    (0x08, True, "The disk reports that it is read-only."),
    (0x01, False, "The disk reports that little spare capacity is left."),
    (0x02, False, "The disk reports a temperature outside its limits."),
    (0x10, False, "The disk reports that the backup of its volatile memory has failed."),
    (0x20, False, "The disk reports that its persistent memory region is read-only or unreliable."),
)
"""The bits of the critical warning, whether the disk has failed, and a sentence.

Source: "SMART / Health Information" (log 02h) in the NVM Express Base Specification.
"""


class Nvme:
    """Reports NVMe disks."""

    name = "nvme"
    classes = ("nvme",)
    paths = (
        *(f"{_CONTROLLER}/{one}" for one in ("model", "serial", "firmware_rev", "state", "subsysnqn", "cntlid")),
        *(f"{_CONTROLLER}/nvme*/{one}" for one in ("size", "holders/*", "nvme*/holders/*")),
        *(f"{_OLD}/{one}" for one in ("size", "holders/*", "nvme*/holders/*")), "proc/self/mounts", "proc/swaps",
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {SMART: ("sh", "-c", _READ_SMART)}

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
    dead = (f"The controller is {state}.",) if state not in ("", "live") else ()
    smart = tree.once(SMART, _smart).get(controllers[0] if controllers else "", {})
    warnings, failed = _smart_problems(smart)
    problems = (*dead, *warnings)
    attributes |= {name: smart[key] for key, name in _SMART_ATTRIBUTES.items() if key in smart}
    uses = _uses(tree, places, mounts)
    if uses:
        attributes["used_by_host"] = tuple(uses)
    made: dict[str, Readiness | str] = {}
    if uses:
        made = {"readiness": Readiness.UNSUPPORTED, "reason": f"The host itself uses the disk: {uses[0]}."}
    elif dead:
        made = {"readiness": Readiness.REBOOT_REQUIRED, "reason": dead[0]}
    return Device(
        id=address, name=values["model"], identities={"serial": serial} if serial else {}, attributes=attributes,
        firmware={"nvme": values["firmware_rev"]} if values["firmware_rev"] else {}, problems=problems,
        nodes=tuple(f"/dev/{one}" for one in places),
        health=Health.FAILED if dead or failed else Health.DEGRADED if problems else Health.OK if state else None,
        counters={"media_errors": smart["media_errors"]} if smart.get("media_errors") else {},
        readiness=Readiness(made["readiness"]) if made else None, reason=str(made.get("reason", "")),
    )  # fmt: skip


_SMART_ATTRIBUTES = {"avail_spare": "spare_percent", "percent_used": "used_percent"}
"""Numbers of the health log that become attributes: the spare capacity left, and the share of the rated life used."""


def _smart(tree: Tree) -> dict[str, dict[str, int]]:
    """Return the numbers of the health log of each controller, by its name."""
    output = tree.tool(SMART)
    if output is None:
        return {}
    if not output.ok:
        tree.warn(SMART, f"nvme smart-log gave no report on a disk (exit code {output.status}). It needs root.")
    found: dict[str, dict[str, int]] = {}
    for part in re.split(r"^= ", output.text, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        try:
            found[name.strip()] = _numbers(json.loads(text))
        except (ValueError, AttributeError, RecursionError) as error:
            tree.warn(SMART, f"The report on {name[:40]!r} is malformed ({type(error).__name__}).")
    return found


def _numbers(document: dict[str, object]) -> dict[str, int]:
    """Return the numbers of a report. Some versions write a warning as an object, and large numbers as text."""
    found = {}
    for name in ("critical_warning", "avail_spare", "spare_thresh", "percent_used", "media_errors"):
        value = document.get(name)
        value = value.get("value") if isinstance(value, dict) else value
        text = f"{value:.0f}" if isinstance(value, float) else str(value)
        if not isinstance(value, bool) and text.isascii() and text.isdigit() and len(text) < 19:  # fits in 64 bits
            found[name] = int(text)
    return found


def _smart_problems(smart: Mapping[str, int]) -> tuple[list[str], bool]:
    """Return a sentence for each problem that the health log has, and whether the disk has failed."""
    warning = smart.get("critical_warning", 0)
    found = [sentence for bit, _, sentence in _WARNINGS if warning & bit]
    if smart.get("avail_spare", 100) < smart.get("spare_thresh", 0) and not warning & 1:
        found.append(_WARNINGS[2][2])
    if smart.get("percent_used", 0) >= 100:
        found.append(f"The disk has used {smart['percent_used']} % of its rated life.")
    return found, any(is_failed for bit, is_failed, _ in _WARNINGS if warning & bit)


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
