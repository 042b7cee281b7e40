"""The kind `gce`: hosts on Google Compute Engine, built when a lease needs one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from blueprints.cloud.config import CloudConfig
from blueprints.cloud.kind import CloudHost
from blueprints.gce.config import Credential, Image

READER = """
provider, every = "gce", 1


def notice():
    said = ask("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return ("preempt", "") if said.strip() == "TRUE" else None
"""
"""Code with which the guest checks whether Compute Engine will reclaim it (see `blueprints.cloud.interruption`).

Source: https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption: the value is TRUE while the
instance is being preempted, up to 30 seconds before it is switched off. Google does not report the time.
"""
AGENT_STATUS = """
there= failed=
for unit in google-guest-agent-manager.service google-guest-agent.service; do
  systemctl cat $unit > /dev/null 2>&1 || continue
  there=yes
  case $(systemctl is-active $unit) in
  active) echo done; exit;;
  failed) failed=$unit;;
  esac
done
if [ "$failed" ]; then echo error; systemctl status --no-pager $failed | tail -n 20
elif [ "$there" ]; then echo running
else echo absent
fi
"""
"""Script that prints the state of Google's guest agent, which creates our account. Since version 20250901.00,
google-guest-agent-manager.service runs and google-guest-agent.service exists but is disabled. In earlier versions, only
google-guest-agent.service exists (https://docs.cloud.google.com/compute/docs/images/guest-agent)."""


class Config(CloudConfig):
    """Config of a blueprint of kind gce."""

    interruption: ClassVar[str] = READER
    agent_status: ClassVar[str] = AGENT_STATUS
    image: Image = Field(default=Image(), description="Image that the machines boot.")


class GceHost(CloudHost):
    """Hosts on Google Compute Engine."""

    name: ClassVar[str] = "gce"
    Config = Config
    Credential = Credential
    client_at: ClassVar[str] = "blueprints.gce.client:Gce"
    sdk: ClassVar[tuple[str, ...]] = ("google-cloud-compute>=1.56",)
    inventory_every: ClassVar[float] = 1800.0
    reserved_tags: ClassVar[tuple[str, ...]] = ("goog",)
    status_every: ClassVar[float] = 5.0
    unauthenticated: ClassVar[frozenset[str]] = frozenset(
        {"authError", "noCredentials", "noToken", "certificate", "401"}
    )
