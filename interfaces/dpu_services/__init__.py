"""The services on a leased DPU: Helm charts that run in pods on its card.

The package contains the definition of a service and its checks (`service`, `helm`), what is seen of it (`status`), the
contract with the order of checks and writes (`contract`), credentials of the DPU cluster (`credentials`), the chains
that connect interfaces (`chain`, `chains`), and a fake for tests. What carries out the writes is a `ServiceBackend`, a
`CredentialBackend` and a `ChainBackend` of the kind.
"""

from interfaces.dpu_services.chain import Chain, ChainInterface
from interfaces.dpu_services.chains import ChainBackend, ChainLimits, Chains, ChainState, ChainStatus, FoundChain
from interfaces.dpu_services.contract import DpuServices, ServiceBackend
from interfaces.dpu_services.credentials import (
    CredentialBackend,
    Credentials,
    CredentialState,
    CredentialStatus,
    FoundCredential,
)
from interfaces.dpu_services.service import AllowedChart, Chart, Port, Service
from interfaces.dpu_services.status import Condition, Deployed, Pod, ServiceState, ServiceStatus

__all__ = [
    "AllowedChart",
    "Chain",
    "ChainBackend",
    "ChainInterface",
    "ChainLimits",
    "ChainState",
    "ChainStatus",
    "Chains",
    "Chart",
    "Condition",
    "CredentialBackend",
    "CredentialState",
    "CredentialStatus",
    "Credentials",
    "Deployed",
    "DpuServices",
    "FoundChain",
    "FoundCredential",
    "Pod",
    "Port",
    "Service",
    "ServiceBackend",
    "ServiceState",
    "ServiceStatus",
]
