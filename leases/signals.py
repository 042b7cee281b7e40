"""Signals for applications that run in the same Django project."""

from django.dispatch import Signal

lease_changed = Signal()
"""Sent after a lease has changed its state and the change is committed, in the process that made it, possibly a worker.

Arguments: `lease_id`, `state` (the new one), `reason`.
"""

interruption_announced = Signal()
"""Sent after commit when the provider has announced that it will soon take back a lease's machine, in the worker that
read the announcement.

Arguments: `lease_id`, `resource_id`, `message` (the provider's words).
"""
