"""Consoles of leases: who is attached, what was typed and not sent yet, and the record of what the machine printed."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from leases.models.lease import Lease
from leases.models.resource import Resource


class Console(models.Model):
    """The serial console of a lease's machine, from the first time that somebody attached to it.

    One process at a time holds the open line, under a token that expires. All others read and write rows.
    """

    lease = models.OneToOneField(Lease, on_delete=models.PROTECT, primary_key=True, related_name="console")
    resource = models.ForeignKey(Resource, on_delete=models.PROTECT, related_name="consoles")
    token = models.UUIDField(null=True)
    token_until = models.DateTimeField(null=True)
    opened_at = models.DateTimeField("open since", null=True)
    forced = models.BooleanField(default=False, db_default=False)
    """Whether the line is opened even if a session outside Drydock must be ended for that."""
    problem = models.TextField(blank=True, default="", db_default="")
    """Why the line was closed last; empty if nobody needed it any more."""
    revision = models.BigIntegerField(default=0, db_default=0)
    """Changes with the line, its writer and its problem."""
    size = models.BigIntegerField(default=0, db_default=0)
    """Bytes recorded since the beginning, including those that are no longer kept."""
    writer = models.UUIDField(null=True)
    """The attachment that may type, if it still exists."""
    typed = models.BigIntegerField(default=0, db_default=0)
    """The number of the writer's last input."""

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_open_console", fields=["resource"], condition=Q(token__isnull=False))
        ]

    def __str__(self) -> str:
        return f"console of lease {self.lease_id}"


class ConsoleAttachment(models.Model):
    """A program that reads a console, and may type if it is the writer. Ends unless it is renewed."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="console_attachments")
    user = models.CharField(max_length=150)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.user} at the console of lease {self.lease_id}"


class ConsoleInput(models.Model):
    """Bytes that were typed and not sent to the machine yet."""

    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="console_input")
    content = models.BinaryField()
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"input to the console of lease {self.lease_id}"


class ConsoleOutput(models.Model):
    """A part of the record, without secrets."""

    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="console_output")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(name="console_output_once", fields=["lease", "start"])]

    def __str__(self) -> str:
        return f"output of the console of lease {self.lease_id} from byte {self.start}"
