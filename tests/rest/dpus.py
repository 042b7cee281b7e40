"""Shared by the tests of `dpu_services` over REST: leases on a fake DPU, and what is left of them."""

from __future__ import annotations

from typing import Any

from blueprints.fake.cloud import Cloud
from leases.messaging.inline import settle
from leases.models import SlotLock


def leased(who: Any) -> int:
    """Return the number of a new lease of a user on the DPU."""
    made = who("POST", "leases", {"type": "fake_activated", "ttl": "2h"}, code=201)["id"]
    settle()
    return int(made)


def left(*nouns: str) -> list[str]:
    """Return the objects of these sorts that are on the DPU, such as `chain web`."""
    return [one.what for one in Cloud("dpus").left() if one.what.partition(" ")[0] in nouns]


def locks(lease: int) -> list[str]:
    """Return the values of the slot locks of a lease."""
    return sorted(SlotLock.objects.filter(lease_id=lease).values_list("value", flat=True))
