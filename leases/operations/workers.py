"""Who works."""

from __future__ import annotations

import datetime as dt
import os
import socket

from django.conf import settings
from django.db.models import Exists, Q
from django.db.models.functions import Now

from leases.engine.core.database import rows
from leases.engine.core.workers import gone, seen
from leases.models import Installation, Worker

__all__ = ["alive", "gone", "seen", "seen_lately", "unattended"]


def alive() -> bool:
    """Whether a worker of another process lives: seen lately and, where all are on this machine, still there."""
    return any(_there(name) for name in seen_lately())


def seen_lately() -> list[str]:
    """The names (host:process) of the workers that were seen lately."""
    found = rows(
        "SELECT name FROM leases_worker WHERE seen_at > clock_timestamp() - %s * interval '1 s'",
        (settings.DRYDOCK.lost_worker_seconds,),
    )
    return [name for (name,) in found]


def unattended() -> Q:
    """Leases whose next step nobody takes: for some seconds no worker was seen and no sweep was made. Beat makes one by
    itself where the broker is away."""
    lately = Now() - dt.timedelta(seconds=settings.DRYDOCK.lost_worker_seconds)
    nobody = ~Exists(Worker.objects.filter(seen_at__gt=lately)) & ~Exists(
        Installation.objects.filter(swept_at__gt=lately)
    )
    waits = {"state__in": ("pending", "acquired", "released"), "held": False, "since__lt": Now() - _AT_ONCE}
    return Q(nobody, **waits)


_AT_ONCE = dt.timedelta(seconds=5)
"""Nobody is missed for so long: a command that waits brings a worker of its own."""


def _there(name: str) -> bool:
    """Names are host:process. Only with private engines is it sure that the process is one of this machine."""
    host, _, process = name.rpartition(":")
    if not settings.DRYDOCK.private_database or host != socket.gethostname() or not process.isdigit():
        return True
    return int(process) != os.getpid() and _lives(int(process))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
