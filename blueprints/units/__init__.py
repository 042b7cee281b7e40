"""Workloads of leases as systemd units of the control account, on hosts that have systemd and podman.

A unit runs one container. Its text, the arguments of podman and the rules of the firewall are made by pure functions
from frozen values (`values`, `text`, `podman`, `firewall`); `jobs` carries them out on the host. The lease's account
has no part in any of it.
"""

from blueprints.units.jobs import UnitCommand, UnitJobs, removed, removed_all
from blueprints.units.podman import needs_units, words
from blueprints.units.values import Identity, Port, Unit

__all__ = ["Identity", "Port", "Unit", "UnitCommand", "UnitJobs", "needs_units", "removed", "removed_all", "words"]
