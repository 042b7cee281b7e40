"""Runs: plans that are being carried out for a resource or a lease."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KT
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Run(models.Model):
    """A plan that is being carried out. The row is deleted when the plan has ended; events record what happened.

    A worker holds it with `token` until `token_until`; a result is applied only while the token still matches.
    """

    class Phase(models.TextChoices):
        BUILD = "build"
        ACTIVATE = "activate"
        DEACTIVATE = "deactivate"
        CLEAN = "clean"
        CHECK = "check"
        POWER = "power"
        REBOOT = "reboot"
        RESIZE = "resize"
        RETYPE = "retype"
        TAG = "tag"
        ACT = "act"
        UPDATE = "update"
        HAND_OVER = "hand_over"
        DESTROY = "destroy"

    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="runs")
    lease = models.ForeignKey(Lease, null=True, blank=True, on_delete=models.PROTECT, related_name="runs")
    phase = models.CharField(max_length=16, choices=Phase.choices)
    position = models.PositiveSmallIntegerField(default=0, db_default=0)
    step = models.CharField(max_length=63, blank=True, default="", db_default="")
    memo: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    wanted: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """The arguments of the phase. For an act: its name (`act`), its `arguments`, and the `lease` that started it."""
    asked: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    """The request of the lease that caused a build. None for any other run."""

    due_at = models.DateTimeField(null=True, blank=True, db_default=Now())
    """The time of the next call. NULL while the run waits for leases, maintenance or a person."""
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    in_call = models.BooleanField("call in progress", default=False, db_default=False)
    """True if a call was begun and its answer is not applied yet, so that the call may have taken effect."""
    woken = models.BooleanField(default=False, db_default=False)
    """True if a watched object has changed since the call began, so that the call may have read its earlier state."""
    woken_at = models.DateTimeField(null=True, blank=True, editable=False)
    """When a watch last made the run due, or will do so next: not more often than once in half a second."""
    progress: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True, editable=False)
    """`Owned.progress` as the watch that made the run due reported it; [] if the step must read, NULL once called."""
    progress_at = models.DateTimeField(null=True, blank=True, editable=False)
    """The `woken_at` of the wake with this progress. A worker of an earlier version wakes without changing it."""
    tries = models.PositiveIntegerField("attempts", default=0, db_default=0)
    step_since = models.DateTimeField(null=True, blank=True)
    uninterruptible = models.BooleanField(default=False, db_default=False)
    cancel_wanted = models.BooleanField("cancellation requested", default=False, db_default=False)

    percent = models.PositiveSmallIntegerField(null=True, blank=True)
    sentence = models.TextField(blank=True, default="", db_default="")
    waits_for = models.CharField(max_length=16, blank=True, default="", db_default="")
    """`leases`, `maintenance` or `operator`; empty while it is not waiting for any of them."""
    maintenance: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    """The maintenance that the run requested for another resource.

    Fields: `resource`, `relation`, `action`, `holders` and `granted`.
    """
    hold_who = models.CharField(max_length=150, blank=True, default="", db_default="")
    resolution: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    """The operator's answer to the last hold of the current step, with the fields of `answers.Resolution`."""
    started_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["resource"], condition=Q(lease=None), name="one_run_per_resource"),
            models.UniqueConstraint(fields=["lease"], condition=~Q(lease=None), name="one_run_per_lease"),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="run_due"),
            models.Index(KT("wanted__lease"), condition=Q(phase="act"), name="run_act_of_lease"),
        ]

    def __str__(self) -> str:
        return f"{self.phase} of {'lease' if self.lease_id else 'resource'} {self.lease_id or self.resource_id}"

    @property
    def debt_id(self) -> int | None:
        """The id of the deferred cleanup that this run carries out, or None if it carries out none."""
        found: int | None = (self.wanted or {}).get("debt")
        return found
