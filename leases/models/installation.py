"""The installation itself and its workers."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class Installation(models.Model):
    """This installation, in one row. Its id and epoch are in the name and tags of every object created outside."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    uuid = models.UUIDField(default=uuid.uuid4, editable=False)
    epoch = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")
    """Fingerprint of the confirmed database and ownership key. While they differ, nothing is destroyed."""
    problem = models.TextField(blank=True, default="", db_default="")
    """Why it is suspended, regardless of the fingerprint; empty if it is not."""
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    epochs: models.JSONField[Any, Any] = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    """Later epochs, each with the first resource id (`r`) and lease id (`l`) that belongs to it."""
    swept_at = models.DateTimeField(null=True, blank=True)
    """When the last sweep was completed."""
    dropped_messages = models.BigIntegerField(default=0, db_default=0)
    """Number of broker messages that workers could not read and dropped."""
    dropped_message = models.TextField(blank=True, default="", db_default="")
    """Why the last of these messages could not be read."""
    dropped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_installation")]

    def __str__(self) -> str:
        return f"{self.uuid} epoch {self.epoch}"


class Worker(models.Model):
    """A worker process group and when it was last seen."""

    name = models.CharField(max_length=255, primary_key=True)
    queues = ArrayField(models.CharField(max_length=63), default=list)
    seen_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name
