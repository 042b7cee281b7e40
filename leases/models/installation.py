"""The installation and its workers."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class Installation(models.Model):
    """This installation, as a single row. Objects that it creates have its id and epoch in their names and tags."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    uuid = models.UUIDField(default=uuid.uuid4, editable=False)
    epoch = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")
    """Hashes of the confirmed database and ownership key. Nothing is destroyed while the present ones differ."""
    problem = models.TextField(blank=True, default="", db_default="")
    """Why the installation is suspended, apart from a different fingerprint. Empty if there is no such reason."""
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    epochs: models.JSONField[Any, Any] = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    """The epochs after the first, each with the first resource id (`r`) and lease id (`l`) that belong to it."""
    swept_at = models.DateTimeField(null=True, blank=True)
    """The time at which the last sweep was completed."""
    dropped_messages = models.BigIntegerField(default=0, db_default=0)
    """Number of broker messages that workers could not read and dropped."""
    dropped_message = models.TextField(blank=True, default="", db_default="")
    """Why the last of the dropped messages could not be read."""
    dropped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_installation")]

    def __str__(self) -> str:
        return f"{self.uuid} epoch {self.epoch}"


class Worker(models.Model):
    """A worker process with its child processes, and when it last sent a heartbeat."""

    name = models.CharField(max_length=255, primary_key=True)
    queues = ArrayField(models.CharField(max_length=63), default=list)
    seen_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name
