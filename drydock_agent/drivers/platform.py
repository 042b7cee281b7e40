"""The machine itself: processors, NUMA nodes, memory, firmware, TPM, and confidential computing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drydock_agent import pci
from drydock_agent.driver import Findings
from drydock_agent.facts import CpuFacts, Host, NumaNode, Value
from drydock_agent.identity import identity, known
from drydock_agent.tree import Tree

_NODES, _CPUS, _DMI, _KVM = "sys/devices/system/node", "sys/devices/system/cpu", "sys/class/dmi/id", "sys/module"

_DMI_FILES = (
    "sys_vendor", "product_name", "product_version", "board_vendor", "board_name", "bios_vendor", "bios_version",
    "bios_date", "chassis_type",
)  # fmt: skip

_SECRETS = {"product_uuid": "dmi_uuid", "product_serial": "serial", "board_serial": "board_serial"}

_SWITCHES = {
    "kvm_intel/parameters/tdx": "tdx", "kvm_amd/parameters/sev": "sev", "kvm_amd/parameters/sev_es": "sev_es",
    "kvm_amd/parameters/sev_snp": "sev_snp",
}  # fmt: skip

_BOOT = "proc/sys/kernel/random/boot_id"

_GUESTS = {"sys/class/misc/tdx_guest": "tdx_guest", "sys/class/misc/sev-guest": "sev_guest"}


class Platform:
    """Reports facts about the host itself."""

    name = "platform"
    classes: tuple[str, ...] = ()
    paths = (
        "proc/cpuinfo", "proc/meminfo", f"{_NODES}/node*", f"{_NODES}/node*/cpulist", f"{_NODES}/node*/distance",
        f"{_NODES}/node*/meminfo", f"{_NODES}/node*/cpu[0-9]*", f"{_CPUS}/cpu[0-9]*/topology/physical_package_id",
        f"{_CPUS}/cpu[0-9]*/topology/core_id", f"{_CPUS}/cpu[0-9]*", "sys/class/tpm/tpm*",
        "sys/class/tpm/tpm*/tpm_version_major", *(f"{_DMI}/{one}" for one in (*_DMI_FILES, *_SECRETS)),
        *(f"{_KVM}/{one}" for one in _SWITCHES), *_GUESTS, "sys/kernel/iommu_groups/*", _BOOT,
    )  # fmt: skip
    tools: Mapping[str, tuple[str, ...]] = {}

    def read(self, tree: Tree) -> Findings:
        """Return facts about the host."""
        flags, cpu = _processors(tree)
        total = re.search(r"^MemTotal:\s+(\d{1,15}) kB", tree.read("proc/meminfo") or "", re.MULTILINE)
        # SMBIOS is readable, but its serial numbers and UUID often only for root.
        identities = {key: text for name, key in _SECRETS.items() if (text := identity(tree.read(f"{_DMI}/{name}")))}
        host = Host(
            cpu=cpu, memory_mib=int(total[1]) >> 10 if total else None, numa_nodes=_nodes(tree), identities=identities,
            dmi={name: text for name in _DMI_FILES if (text := known(tree.read(f"{_DMI}/{name}")))},
            tpm=_tpm(tree), confidential=_confidential(tree, flags),
            attributes=_attributes(tree),
        )  # fmt: skip
        return Findings(host=host)


def _attributes(tree: Tree) -> dict[str, Value]:
    boot = identity(tree.read(_BOOT))
    found: dict[str, Value] = {"boot_id": boot} if boot else {}
    return found | ({"iommu": True} if tree.names("sys/kernel/iommu_groups") else {})


def _processors(tree: Tree) -> tuple[set[str], CpuFacts]:
    text = tree.read("proc/cpuinfo") or ""
    fields: dict[str, str] = {}
    threads, packages, cores, package = 0, set(), set(), ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key = key.strip()
        if key == "processor" or key.startswith("processor "):  # s390 writes the number before the colon
            threads += 1
        elif key == "physical id":
            package = value.strip()
            packages.add(package)
        elif key == "core id":
            cores.add((package, value.strip()))
        if key not in fields:
            fields[key] = value.strip()
    places = [f"{_CPUS}/{one}/topology" for one in tree.names(_CPUS) if re.fullmatch(r"cpu\d+", one)]
    pairs = {(tree.read(f"{one}/physical_package_id"), tree.read(f"{one}/core_id")) for one in places}
    pairs = {one for one in pairs if one[0] is not None}
    facts = CpuFacts(
        vendor=fields.get("vendor_id") or fields.get("CPU implementer", ""),
        model=known(fields.get("model name") or fields.get("Model") or fields.get("cpu model")),
        sockets=len({one[0] for one in pairs}) or len(packages), cores=len(pairs) or len(cores),
        threads=threads or len(places),
    )  # fmt: skip
    return set((fields.get("flags") or fields.get("Features") or "").split()), facts


def _nodes(tree: Tree) -> tuple[NumaNode, ...]:
    found = []
    for name in sorted(tree.names(_NODES), key=pci.natural):
        if not re.fullmatch(r"node\d{1,6}", name):
            continue
        folder = f"{_NODES}/{name}"
        total = re.search(r"MemTotal:\s+(\d{1,15}) kB", tree.read(f"{folder}/meminfo") or "")
        distances = (tree.read(f"{folder}/distance") or "").split()
        cpus = tree.read(f"{folder}/cpulist")
        if cpus is None:
            cpus = _ranges([int(one[3:]) for one in tree.names(folder) if re.fullmatch(r"cpu\d{1,6}", one)])
        found.append(NumaNode(
            node=int(name[4:]), cpus=cpus, memory_mib=int(total[1]) >> 10 if total else None,
            distances=tuple(int(one) for one in distances if one.isdecimal()),
        ))  # fmt: skip
    return tuple(found)


def _ranges(numbers: list[int]) -> str:
    """Return numbers as the kernel writes lists of CPUs: `0-3,8`."""
    found: list[list[int]] = []
    for one in sorted(numbers):
        if found and found[-1][1] == one - 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _tpm(tree: Tree) -> str:
    chips = [one for one in tree.names("sys/class/tpm") if re.fullmatch(r"tpm\d+", one)]
    if not chips:
        return ""
    version = tree.integer(f"sys/class/tpm/{chips[0]}/tpm_version_major")
    return {1: "1.2", 2: "2.0"}.get(version or 0, "unknown version")


def _confidential(tree: Tree, flags: set[str]) -> tuple[str, ...]:
    """Return what the kernel has enabled. A processor that could do it is not enough."""
    found = {name for path, name in _SWITCHES.items() if tree.read(f"{_KVM}/{path}") in ("Y", "1")}
    found |= {name for path, name in _GUESTS.items() if tree.exists(path)}
    found |= {"sgx"} & flags
    found |= {"tdx_guest"} & flags
    return tuple(sorted(found))
