"""What differs between the versions of DPF: phases and their conditions, kinds, and names of fields.

From the types and controllers of NVIDIA/doca-platform (api/provisioning/v1alpha1, internal/provisioning/controllers)
and the CRDs in ../shared/captures. The order of the phases differs among the versions around 26.4: DPU Config and
Rebooting change places, and so do Pending and Node Effect. Here it is the order in which handlers name one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.dpus.api import (
    ATTACHMENT,
    BFB,
    CHAIN,
    CLUSTER,
    CONFIGURATION,
    CREDENTIAL,
    DEPLOYMENT,
    DEVICE,
    DPU,
    DPU_NODE,
    FLAVOR,
    INTERFACE,
    IPAM,
    MAINTENANCE,
    NAD,
    NODE,
    PROVISIONING,
    SERVICE,
    SET,
    SOFTWARE,
    TEMPLATE,
    VIRTUAL_NETWORK,
    VOLUME,
    VPC,
    Kind,
)

ERROR, DELETING, READY, REBOOTING, INSTALLING = "Error", "Deleting", "Ready", "Rebooting", "OS Installing"
NODE_EFFECT, HOST_NETWORK, JOINING = "Node Effect", "Host Network Configuration", "DPU Cluster Config"
PENDING, REMOVAL = "Pending", "Node Effect Removal"

ENABLED = "feature.node.kubernetes.io/dpu-enabled"
SET_NAME, SET_NAMESPACE = f"{PROVISIONING}/dpuset-name", f"{PROVISIONING}/dpuset-namespace"
NODE_NAME, DEVICE_NAME = f"{PROVISIONING}/dpunode-name", f"{PROVISIONING}/dpudevice-name"
PCI_ADDRESS, PF_NAME = f"{PROVISIONING}/dpu-pciAddress", f"{PROVISIONING}/dpu-pf-name"
HOLD = f"{PROVISIONING}/wait-for-external-nodeeffect"
REBOOT = f"{PROVISIONING}/dpunode-external-reboot-required"
WAITING = "WaitingForManualPowerCycleOrReboot"

FINALIZERS = {
    kind.name: f"{PROVISIONING}/{kind.name.lower()}-protection"
    for kind in (BFB, SOFTWARE, DEVICE, DPU, DPU_NODE, MAINTENANCE, SET)
} | {
    DEPLOYMENT.name: "dpu.nvidia.com/dpudeployment",
    SERVICE.name: "dpu.nvidia.com/dpuservice", CREDENTIAL.name: "dpu.nvidia.com/dpuservicecredentialrequest",
    IPAM.name: "svc.dpu.nvidia.com/dpuserviceipam", NAD.name: "svc.dpu.nvidia.com/dpuservicenad",
    INTERFACE.name: "svc.dpu.nvidia.com/dpuserviceinterface", CHAIN.name: "svc.dpu.nvidia.com/dpuservicechain",
    VOLUME.name: "storage.dpu.nvidia.com/dpuvolume", ATTACHMENT.name: "storage.dpu.nvidia.com/dpuvolumeattachment",
    VPC.name: "ovn.vpc.dpu.nvidia.com/vpc-protection",
    VIRTUAL_NETWORK.name: "ovn.vpc.dpu.nvidia.com/virtualnetwork-protection",
}  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """A phase of a DPU. `condition` is the type that becomes true with its end."""

    name: str
    condition: str = ""


@dataclass(frozen=True)
class Generation:
    """A version of DPF."""

    name: str
    phases: tuple[Phase, ...]
    kinds: tuple[Kind, ...]
    host_field: str
    """The field of a DPU's spec that names its host."""
    preparing: frozenset[str] = frozenset()
    """While a DPU of a host is in one of these phases, the host is not rebooted for another."""

    @property
    def devices(self) -> bool:
        """Whether cards and hosts are objects of their own, or labels of Nodes."""
        return DEVICE in self.kinds

    def phase(self, name: str) -> Phase:
        """Return a phase by name."""
        return next((phase for phase in self.phases if phase.name == name), Phase(name))

    def with_phases(self, names: Sequence[str]) -> Generation:
        """Return the same with other phases, or in another order."""
        return replace(self, phases=tuple(self.phase(name) for name in names))


V24_10 = Generation(
    "24.10",
    phases=(
        Phase("Initializing", "Initialized"),
        Phase(NODE_EFFECT, "NodeEffectReady"),
        Phase(PENDING, "BFBReady"),
        Phase("DMS Deployment", "DMSRunning"),
        Phase(INSTALLING, "OSInstalled"),
        Phase(REBOOTING, "Rebooted"),
        Phase(HOST_NETWORK, "HostNetworkReady"),
        Phase(JOINING),
        Phase(READY, "Ready"),
    ),
    kinds=(
        BFB,
        CLUSTER,
        FLAVOR,
        TEMPLATE,
        CONFIGURATION,
        DEPLOYMENT,
        SET,
        DPU,
        SERVICE,
        IPAM,
        INTERFACE,
        CHAIN,
        CREDENTIAL,
        NODE,
    ),
    host_field="nodeName",
)
V26_4 = Generation(
    "26.4",
    phases=(
        Phase("Initializing", "Initialized"),
        Phase(PENDING, "BFBReady"),
        Phase(NODE_EFFECT, "NodeEffectReady"),
        Phase("Initialize Interface", "InterfaceInitialized"),
        Phase("Config FW Parameters", "FWConfigured"),
        Phase("Prepare BFB", "BFBPrepared"),
        Phase(INSTALLING, "OSInstalled"),
        Phase("DPU Config", "DPUConfig"),
        Phase(REBOOTING, "Rebooted"),
        Phase(HOST_NETWORK, "HostNetworkReady"),
        Phase(JOINING, "DPUClusterReady"),
        Phase(REMOVAL, "NodeEffectRemoved"),
        Phase(READY, "Ready"),
    ),
    kinds=(
        BFB,
        CLUSTER,
        FLAVOR,
        DEVICE,
        DPU_NODE,
        MAINTENANCE,
        TEMPLATE,
        CONFIGURATION,
        DEPLOYMENT,
        SET,
        DPU,
        SERVICE,
        IPAM,
        NAD,
        INTERFACE,
        CHAIN,
        VOLUME,
        ATTACHMENT,
        VIRTUAL_NETWORK,
        VPC,
        CREDENTIAL,
        NODE,
    ),
    host_field="dpuNodeName",
    preparing=frozenset({"Initialize Interface", "Config FW Parameters", "Prepare BFB", INSTALLING, "DPU Config"}),
)
V26_10 = replace(V26_4, name="26.10", kinds=(SOFTWARE, *V26_4.kinds))
"""26.4 with DPUs that are also installed from a BlueFieldSoftware, which is all of 26.10 that tests need."""
