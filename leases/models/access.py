"""Authorizations to use blueprints, and quotas."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from blueprints.models import Blueprint


class Authorization(models.Model):
    """The authorization of a user or group to use a blueprint: requested, authorized or declined."""

    class State(models.TextChoices):
        REQUESTED = "requested"
        AUTHORIZED = "authorized"
        DECLINED = "declined"

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="authorizations")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE)
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE)
    state = models.CharField(max_length=16, choices=State.choices, default=State.REQUESTED)
    note = models.TextField(blank=True, default="", db_default="")
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(user=None) ^ Q(group=None), name="authorization_names_one"),
            models.UniqueConstraint(
                fields=["blueprint", "user", "group"], name="authorization_once", nulls_distinct=False
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user or self.group} on {self.blueprint}: {self.state}"


class Quota(models.Model):
    """A limit on what a user, or the members of a group together, may hold at the same time, and for how long.

    An empty field means no limit.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE)
    group = models.OneToOneField(Group, null=True, blank=True, on_delete=models.CASCADE)
    max_leases = models.PositiveIntegerField("maximum leases", null=True, blank=True)
    max_slots = models.PositiveIntegerField("maximum slots", null=True, blank=True)
    max_cpu_millicores = models.PositiveBigIntegerField("maximum CPU (millicores)", null=True, blank=True)
    max_ram_mib = models.PositiveBigIntegerField("maximum RAM (MiB)", null=True, blank=True)
    max_disk_mib = models.PositiveBigIntegerField("maximum disk (MiB)", null=True, blank=True)
    max_extra: models.JSONField[Any, Any] = models.JSONField(
        "maximum of other classes",
        default=dict,
        blank=True,
        db_default=models.Value({}, models.JSONField()),
        help_text='For each additional class of capacity, such as {"gpu": 4}.',
    )
    default_ttl = models.DurationField(
        "default lease duration",
        null=True,
        blank=True,
        help_text="The duration of a lease whose request specifies none.",
    )
    max_ttl = models.DurationField(
        "maximum lease duration",
        null=True,
        blank=True,
        help_text="The longest duration that an owner can request. Operators can exceed it.",
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(user=None) ^ Q(group=None), name="quota_names_one")]

    def __str__(self) -> str:
        return f"quota of {self.user or self.group}"
