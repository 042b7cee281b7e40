"""The frozen values that operations return. `to_json` writes them, `from_json` reads them."""

from drydock_client.values.access import (
    AuthorizationInfo,
    CredentialInfo,
    PasswordInfo,
    QuotaInfo,
    QuotaLimit,
    TokenInfo,
    UserInfo,
)
from drydock_client.values.agents import AgentInfo, AgentInstallation, AgentOrderInfo, JoinCodeInfo
from drydock_client.values.attestation import CheckResult, EvidenceInfo
from drydock_client.values.blueprints import BlueprintChange, BlueprintInfo, KindInfo
from drydock_client.values.costs import BudgetInfo, LeaseEnd, UsageInfo, UsageReport, UsageSum
from drydock_client.values.events import Attention, EventInfo
from drydock_client.values.fleet import BackendInfo, InstanceInfo, OrphanInfo, Workers
from drydock_client.values.hardware import DeviceInfo, HardwareInfo, HardwareScanInfo
from drydock_client.values.json import to_json
from drydock_client.values.leases import Explanation, LeaseInfo, Progress, Sibling, Verdict, WaitingInfo
from drydock_client.values.machines import AccessInfo, Bastion, ConsoleInfo, ConsolePart, HostKey, MachineInfo
from drydock_client.values.offers import (
    InstanceTypeInfo,
    LocationInfo,
    OfferInfo,
    PriceInfo,
    ReaderInfo,
    ReadingInfo,
)
from drydock_client.values.resources import (
    ActInfo,
    CleaningInfo,
    DeclaredActInfo,
    ErasureInfo,
    FailureInfo,
    RegistrationInfo,
    ResourceInfo,
    SensorReadingInfo,
    SensorReportInfo,
    Usage,
)
from drydock_client.values.watches import MetricsInfo, WorkloadInfo
from drydock_client.values.wire import from_json
from drydock_client.values.work import (
    DpuChart,
    DpuPort,
    DpuServiceInfo,
    Ended,
    FileInfo,
    JobInfo,
    JobPart,
    LogPart,
    ServerInfo,
)

__all__ = [
    "AccessInfo",
    "ActInfo",
    "AgentInfo",
    "AgentInstallation",
    "AgentOrderInfo",
    "Attention",
    "AuthorizationInfo",
    "BackendInfo",
    "Bastion",
    "BlueprintChange",
    "BlueprintInfo",
    "BudgetInfo",
    "CheckResult",
    "CleaningInfo",
    "ConsoleInfo",
    "ConsolePart",
    "CredentialInfo",
    "DeclaredActInfo",
    "DeviceInfo",
    "DpuChart",
    "DpuPort",
    "DpuServiceInfo",
    "Ended",
    "ErasureInfo",
    "EventInfo",
    "EvidenceInfo",
    "Explanation",
    "FailureInfo",
    "FileInfo",
    "HardwareInfo",
    "HardwareScanInfo",
    "HostKey",
    "InstanceInfo",
    "InstanceTypeInfo",
    "JobInfo",
    "JobPart",
    "JoinCodeInfo",
    "KindInfo",
    "LeaseEnd",
    "LeaseInfo",
    "LocationInfo",
    "LogPart",
    "MachineInfo",
    "MetricsInfo",
    "OfferInfo",
    "OrphanInfo",
    "PasswordInfo",
    "PriceInfo",
    "Progress",
    "QuotaInfo",
    "QuotaLimit",
    "ReaderInfo",
    "ReadingInfo",
    "RegistrationInfo",
    "ResourceInfo",
    "SensorReadingInfo",
    "SensorReportInfo",
    "ServerInfo",
    "Sibling",
    "TokenInfo",
    "Usage",
    "UsageInfo",
    "UsageReport",
    "UsageSum",
    "UserInfo",
    "Verdict",
    "WaitingInfo",
    "Workers",
    "WorkloadInfo",
    "from_json",
    "to_json",
]
