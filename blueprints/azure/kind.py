"""The kind `azure`: hosts on Azure, built when a lease needs one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from blueprints.azure.config import Credential, Image
from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.offers import Offer

READER = """
provider, every = "azure", 1


def notice():
    said = ask("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"}, timeout=150)
    for event in json.loads(said)["Events"]:
        if event["EventType"] == "Preempt":
            return "preempt", when(event.get("NotBefore", ""))
    return None
"""
"""Code with which the guest checks whether Azure will reclaim the machine (see `blueprints.cloud.interruption`).

Source: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: an event of type Preempt appears at
least 30 seconds before; polling once a second is recommended. The first request switches the service on, which takes up
to two minutes. Drydock's machines are not in a scale set or availability set, so every event that they see is about
themselves.
"""
_WAAGENT = "/var/lib/waagent"
AGENT_STATUS = f"""
if [ -e {_WAAGENT}/provisioned ]; then echo done
elif [ -d {_WAAGENT} ]; then echo running
else echo absent
fi
"""
"""Script that prints the state of Azure's agent, which creates a file once it has provisioned the machine."""


class Config(CloudConfig):
    """Config of a blueprint of kind azure."""

    interruption: ClassVar[str] = READER
    agent_status: ClassVar[str] = AGENT_STATUS
    image: Image = Field(default=Image(), description="Image that the machines boot.")


class AzureHost(CloudHost):
    """Hosts on Azure."""

    name: ClassVar[str] = "azure"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.azure.client:Azure"
    sdk: ClassVar[tuple[str, ...]] = ("azure-identity>=1.27", "azure-mgmt-compute>=39", "azure-mgmt-network>=30")
    inventory_every: ClassVar[float] = 300.0
    reserved_tags: ClassVar[tuple[str, ...]] = ("microsoft", "azure", "windows")
    status_every: ClassVar[float] = 10.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset(
        {
            "AuthenticationFailed",
            "ExpiredAuthenticationToken",
            "InvalidAuthenticationToken",
            "InvalidAuthenticationTokenTenant",
            "credentials",
        }
    )

    def surcharge(self, offer: Offer) -> float | None:
        """Return no surcharge: confidential machines are sizes of their own, with prices of their own."""
        return 0.0
