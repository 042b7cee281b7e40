"""Agents, which report what hardware is in their hosts, the codes with which they join, and their orders."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from blueprints.models import Blueprint
from drydock.core.fields import EncryptedJSONField


class Agent(models.Model):
    """An agent that reports the hardware of one host, which is a place of a blueprint, or one that is expected there.

    An agent is expected if its blueprint requires one in the place. It then has a row before it joins.
    """

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="agents", db_index=False)
    place = models.CharField(max_length=255, help_text="The name of the host in the blueprint.")
    name = models.CharField("host name", max_length=255, blank=True, default="", db_default="")
    identities: models.JSONField[Any, Any] = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    """The identities of the host when the agent joined. Later messages must not contradict them."""
    version = models.CharField(max_length=100, blank=True, default="", db_default="")
    boot_id = models.CharField(max_length=100, blank=True, default="", db_default="")
    drivers: models.JSONField[Any, Any] = models.JSONField(
        default=list, blank=True, db_default=models.Value([], models.JSONField())
    )
    interval = models.FloatField(help_text="Seconds between two reports.")
    sequence = models.BigIntegerField(default=0, db_default=0)
    """The number of the last report that was received. Reports with this or a smaller number are refused."""
    clock_offset = models.FloatField(null=True, blank=True, help_text="Seconds by which its clock is ahead of ours.")
    problem = models.TextField(blank=True, default="", db_default="", help_text="Why its last report was refused.")
    created_at = models.DateTimeField(db_default=Now())
    joined_at = models.DateTimeField(null=True, blank=True)
    hello_at = models.DateTimeField("last hello", null=True, blank=True)
    reported_at = models.DateTimeField("last report", null=True, blank=True)
    silent_since = models.DateTimeField(null=True, blank=True)
    """Since when its reports are missing. The resources in its place serve no new leases until the next report."""
    outdated_since = models.DateTimeField(null=True, blank=True)
    clock_off_since = models.DateTimeField(null=True, blank=True)
    endpoint = models.CharField(
        max_length=300, blank=True, default="", db_default="", help_text="HOST:PORT at which the server may call it."
    )
    """Empty if the agent does not listen, or if its endpoint is not confirmed yet."""
    fingerprint = models.CharField(
        max_length=64, blank=True, default="", db_default="", verbose_name="certificate",
        help_text="The SHA-256 of the certificate of its endpoint. No other one is accepted there.",
    )  # fmt: skip
    offered: models.JSONField[Any, Any] = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    """An endpoint and a fingerprint that the agent announced and that an operator has to confirm; empty if none."""
    call_problem = models.TextField(
        blank=True, default="", db_default="", help_text="Why the last call of its endpoint failed."
    )
    secrets = EncryptedJSONField(default=dict, null=True, editable=False)
    """The secrets with which the server authenticates at the endpoint: the `current` one and the one `before` it."""
    revoked_at = models.DateTimeField("revoked", null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["blueprint", "place"], condition=Q(revoked_at=None), name="agent_once"),
        ]
        indexes = [
            models.Index(fields=["id"], condition=~Q(silent_since=None), name="agent_silent"),
        ]

    def __str__(self) -> str:
        return f"{self.blueprint}, {self.name or self.place}"


class JoinCode(models.Model):
    """A code with which one agent may join a blueprint once. Only its digest is stored."""

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="+")
    place = models.CharField(max_length=255, blank=True, default="", help_text="The host that may use it; empty: any.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"join code for {self.blueprint}" + (f", {self.place}" if self.place else "")


class AgentOrder(models.Model):
    """Something that an agent is told to do. It is sent again until the agent answers or the order expires."""

    class Action(models.TextChoices):
        DISCOVERY = "discovery", "scan the hardware and report it"
        UPGRADE = "upgrade", "install the server's version of the agent"

    class State(models.TextChoices):
        WAITING = "waiting", "not yet fetched by the agent"
        SENT = "sent", "fetched by the agent"
        RUNNING = "running", "in progress"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        EXPIRED = "expired", "not done in time"

    OPEN = (State.WAITING, State.SENT, State.RUNNING)

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="orders")
    action = models.CharField(max_length=16, choices=Action.choices)
    arguments: models.JSONField[Any, Any] = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    percent = models.PositiveSmallIntegerField(null=True, blank=True)
    message = models.TextField(blank=True, default="", db_default="")
    actor = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "action"], condition=Q(ended_at=None), name="agent_order_once_at_a_time"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} for {self.agent_id}"
