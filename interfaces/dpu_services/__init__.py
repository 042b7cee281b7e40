"""The services on a leased DPU: Helm charts that run in pods on its card.

The package contains the definition of a service and its checks (`service`, `helm`), what is seen of it (`status`), the
contract with the order of checks and writes (`contract`), credentials of the DPU cluster (`credentials`), the chains
that connect interfaces (`chain`, `chains`), networks with their ranges of addresses (`network`, `networks`), volumes
(`volumes`), VPCs (`vpcs`), what these have in common (`objects`, `connections`), and a fake for tests. What carries out
the writes is a `ServiceBackend`, a `CredentialBackend`, and a `ChainBackend`, `NetworkBackend`, `VolumeBackend` and
`VpcBackend` of the kind.
"""

from interfaces.dpu_services.chain import Chain, ChainInterface
from interfaces.dpu_services.chains import ChainBackend, Chains
from interfaces.dpu_services.connections import ChainLimits
from interfaces.dpu_services.contract import DpuServices, ServiceBackend
from interfaces.dpu_services.credentials import (
    CredentialBackend,
    Credentials,
    CredentialState,
    CredentialStatus,
    FoundCredential,
)
from interfaces.dpu_services.network import Network
from interfaces.dpu_services.networks import NetworkBackend, Networks
from interfaces.dpu_services.objects import Found, ObjectBackend, Objects, ObjectState, ObjectStatus
from interfaces.dpu_services.service import AllowedChart, Chart, Port, Service
from interfaces.dpu_services.status import Condition, Deployed, Pod, ServiceState, ServiceStatus
from interfaces.dpu_services.volumes import Volume, VolumeBackend, VolumeLimits, Volumes
from interfaces.dpu_services.vpcs import VirtualNetwork, Vpc, VpcBackend, Vpcs

__all__ = [
    "AllowedChart",
    "Chain",
    "ChainBackend",
    "ChainInterface",
    "ChainLimits",
    "Chains",
    "Chart",
    "Condition",
    "CredentialBackend",
    "CredentialState",
    "CredentialStatus",
    "Credentials",
    "Deployed",
    "DpuServices",
    "Found",
    "FoundCredential",
    "Network",
    "NetworkBackend",
    "Networks",
    "ObjectBackend",
    "ObjectState",
    "ObjectStatus",
    "Objects",
    "Pod",
    "Port",
    "Service",
    "ServiceBackend",
    "ServiceState",
    "ServiceStatus",
    "VirtualNetwork",
    "Volume",
    "VolumeBackend",
    "VolumeLimits",
    "Volumes",
    "Vpc",
    "VpcBackend",
    "Vpcs",
]
