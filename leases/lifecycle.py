"""Where an instance stands, in the words that all clouds share: a table over the states of its lease and machine."""

from __future__ import annotations

from django.db.models import Q

PENDING, RUNNING, STOPPING, STOPPED = "pending", "running", "stopping", "stopped"
TERMINATING, TERMINATED, FAILED = "terminating", "terminated", "failed"
STATES = (PENDING, RUNNING, STOPPING, STOPPED, TERMINATING, TERMINATED, FAILED)
OVER = (TERMINATED, FAILED)

_BY_LEASE = {
    "pending": PENDING, "acquired": PENDING, "released": TERMINATING, "destroyed": TERMINATED, "broken": FAILED,
}  # fmt: skip
"""Of an active lease its machine decides."""
_BY_RESOURCE = {"released": TERMINATING, "destroyed": TERMINATED, "broken": FAILED}
"""Of an active machine its power decides."""
_BY_POWER = {
    ("off", "off"): STOPPED, ("off", "on"): STOPPING, ("off", ""): STOPPING,
    ("on", "off"): PENDING, ("on", "on"): RUNNING, ("on", ""): RUNNING,
    ("", "off"): STOPPED, ("", "on"): RUNNING, ("", ""): RUNNING,
}  # fmt: skip
"""(power wanted, power) of an active lease on an active machine."""


def state_of(lease: str, resource: str = "", power: str = "", wanted: str = "") -> str:
    """The word for a lease and its machine; the latter's are empty while there is none."""
    if lease != "active":
        return _BY_LEASE[lease]
    return _BY_RESOURCE.get(resource) or _BY_POWER.get((wanted, power), RUNNING)


def standing(word: str) -> Q:
    """The leases whose instances have a state."""
    found = Q(state__in=[state for state, said in _BY_LEASE.items() if said == word])
    found |= Q(state="active", resource__state__in=[state for state, said in _BY_RESOURCE.items() if said == word])
    for (wanted, power), said in _BY_POWER.items():
        if said == word:
            of_power = Q(resource__power=power, resource__power_wanted=wanted)
            found |= Q(state="active", resource__state__in=["pending", "active"]) & of_power
    return found
