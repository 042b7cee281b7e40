"""The database models of leases, resources, and the objects that belong to them."""

from leases.models.access import Authorization, Quota
from leases.models.agent import Agent, AgentOrder, JoinCode
from leases.models.budget import Budget
from leases.models.console import Console, ConsoleAttachment, ConsoleInput, ConsoleOutput
from leases.models.debt import Debt
from leases.models.erasure import ErasureRecord
from leases.models.event import Event
from leases.models.evidence import LeaseEvidence
from leases.models.failure import Failure
from leases.models.former_config import FormerConfig
from leases.models.installation import Installation, Worker
from leases.models.job import Job
from leases.models.lease import Lease, LeaseGroup
from leases.models.login import LoginAttempt
from leases.models.resource import Capacity, Part, Resource, ResourceCredential, ResourceIdentity, SensorReport
from leases.models.run import Run
from leases.models.share import Share, SlotLock
from leases.models.stray import Search, Stray
from leases.models.sync import Finding, ProviderWatch, ReportedHardware, Sync
from leases.models.usage import Usage

__all__ = [
    "Agent",
    "AgentOrder",
    "Authorization",
    "Budget",
    "Capacity",
    "Console",
    "ConsoleAttachment",
    "ConsoleInput",
    "ConsoleOutput",
    "Debt",
    "ErasureRecord",
    "Event",
    "Failure",
    "Finding",
    "FormerConfig",
    "Installation",
    "Job",
    "JoinCode",
    "Lease",
    "LeaseEvidence",
    "LeaseGroup",
    "LoginAttempt",
    "Part",
    "ProviderWatch",
    "Quota",
    "ReportedHardware",
    "Resource",
    "ResourceCredential",
    "ResourceIdentity",
    "Run",
    "Search",
    "SensorReport",
    "Share",
    "SlotLock",
    "Stray",
    "Sync",
    "Usage",
    "Worker",
]
