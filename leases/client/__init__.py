"""What a program outside the engine needs of it: the `Client` protocol and the frozen values it speaks in.

They live in the package `drydock_client`, which needs no Django and goes where the engine does not.
`leases.local.LocalClient` speaks to the engine of this machine, `drydock_client.HttpClient` to a server.
"""

from leases.client.errors import LeaseFailed, NoWorker
from leases.client.protocol import Client
from leases.client.values import (
    Attention,
    AuthorizationInfo,
    BlueprintChange,
    BlueprintInfo,
    CredentialInfo,
    Ended,
    EventInfo,
    Explanation,
    FileInfo,
    JobInfo,
    JobPart,
    KindInfo,
    LeaseInfo,
    LogPart,
    Progress,
    QuotaInfo,
    ResourceInfo,
    ServerInfo,
    Usage,
    Verdict,
    to_json,
)

__all__ = [
    "Attention",
    "AuthorizationInfo",
    "BlueprintChange",
    "BlueprintInfo",
    "Client",
    "CredentialInfo",
    "Ended",
    "EventInfo",
    "Explanation",
    "FileInfo",
    "JobInfo",
    "JobPart",
    "KindInfo",
    "LeaseFailed",
    "LeaseInfo",
    "LogPart",
    "NoWorker",
    "Progress",
    "QuotaInfo",
    "ResourceInfo",
    "ServerInfo",
    "Usage",
    "Verdict",
    "to_json",
]
