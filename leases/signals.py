"""Signals for applications that run in the same Django project."""

from django.dispatch import Signal

lease_changed = Signal()
"""A lease changed its state; sent after commit, in the process that changed it, which may be a worker.

Arguments: `lease_id`, `state` (the new one), `reason`.
"""

interruption_announced = Signal()
"""The provider of a lease's machine has announced that it takes it back soon; sent after commit, in the worker that
read it.

Arguments: `lease_id`, `resource_id`, `message` (with the provider's words).
"""
