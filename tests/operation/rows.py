"""Rows that tests of operation need in numbers."""

from __future__ import annotations

from django.contrib.auth.models import User

from leases.models import Lease


def ended(count: int) -> None:
    """So many leases that have ended."""
    owner = User.objects.create_user("past")
    Lease.objects.bulk_create(Lease(type="fake", owner=owner, shape="x", state="destroyed") for _ in range(count))
