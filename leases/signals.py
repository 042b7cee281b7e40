"""Signals for applications that run in the same Django project."""

from django.dispatch import Signal

lease_changed = Signal()
"""Sent after a change of a lease's state is committed, in the process that made the change, which may be a worker.

Arguments: `lease_id`, `state` (the new state), `reason`.
"""

interruption_announced = Signal()
"""Sent after commit when a provider has announced that it will soon take back the machine of a lease.

It is sent in the worker that read the announcement. Arguments: `lease_id`, `resource_id`, `message` (the provider's
words).
"""
