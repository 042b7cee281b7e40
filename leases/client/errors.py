"""What can come of a lease that was waited for, beside its being active."""

from __future__ import annotations

from drydock_client.errors import LeaseFailed, NoWorker

__all__ = ["LeaseFailed", "NoWorker"]
