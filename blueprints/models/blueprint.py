"""Stored blueprints, credentials, and what is remembered of offers that failed."""

from __future__ import annotations

from typing import Any

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField

_NAME = RegexValidator(r"^[a-z0-9][a-z0-9._-]*$", "Use small letters, digits, '.', '_' and '-'.")


class Present(models.Manager["Blueprint"]):
    """The blueprints that were not removed; related rows still find the others."""

    def get_queryset(self) -> models.QuerySet[Blueprint]:
        """Without the removed ones."""
        return super().get_queryset().filter(removed_at=None)


class Blueprint(models.Model):
    """Instructions to build, use, watch, update, clean and destroy one type of resource in one place.

    One that had resources stays as a row after its removal, for their history; its name is free again.
    """

    class Audience(models.TextChoices):
        EVERYONE = "everyone", "every owner may use it"
        AUTHORIZED = "authorized", "only owners with an authorization may use it"

    name = models.CharField(max_length=63, validators=[_NAME])
    kind = models.CharField(max_length=63, help_text="The implementation it selects.")
    resource_type = models.CharField(max_length=63, editable=False, db_index=True)
    config: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    order = models.IntegerField(default=100, help_text="Blueprints are tried from low to high.")
    enabled = models.BooleanField(default=True, db_default=True)
    drained = models.BooleanField(
        default=False, db_default=False, help_text="Nothing new; idle resources are given up."
    )
    audience = models.CharField(max_length=16, choices=Audience.choices, default=Audience.AUTHORIZED)
    generation = models.PositiveIntegerField(
        default=1, db_default=1, editable=False, help_text="Raised when kind or config changes."
    )
    max_resources = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    min_ready = models.PositiveIntegerField(default=0, db_default=0, help_text="So many idle resources are kept ready.")
    max_builds = models.PositiveIntegerField(
        default=10, db_default=10, validators=[MinValueValidator(1)], help_text="Builds at the same time."
    )
    max_outdated = models.PositiveIntegerField(
        default=1, db_default=1, help_text="Outdated resources updated or replaced at the same time; 0: none."
    )
    idle_timeout = models.DurationField(null=True, blank=True, help_text="Idle longer: given up.")
    max_lifetime = models.DurationField(null=True, blank=True, help_text="Older: no new lease, then given up.")
    check_interval = models.DurationField(null=True, blank=True, help_text="Between health checks.")
    default_ttl = models.DurationField(
        "default lease", null=True, blank=True, help_text="A lease that names no end lasts this long."
    )
    max_ttl = models.DurationField(
        "longest lease", null=True, blank=True, help_text="No lease lasts longer, unless an operator lets it."
    )
    note = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    removed_at = models.DateTimeField(null=True, editable=False)

    objects = Present()
    everything: models.Manager[Blueprint] = models.Manager()

    class Meta:
        ordering = ["order", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(removed_at=None), name="blueprint_name_once",
                violation_error_message="There is a blueprint of this name already.",
            )
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name


class Credential(models.Model):
    """Secrets that blueprints name in their config; encrypted, never shown again."""

    name = models.CharField(max_length=63, unique=True, validators=[_NAME])
    secrets = EncryptedJSONField(default=dict, help_text='For example {"private_key": "..."}.')
    note = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name


class RememberedError(models.Model):
    """An offer, a zone, what a location counts alike, or a whole blueprint that failed, and until when it is not tried
    again."""

    class Scope(models.TextChoices):
        OFFER = "offer"
        ZONE = "zone"
        LOCATION = "location"
        BLUEPRINT = "blueprint"
        OPERATOR = "operator"

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="errors")
    scope = models.CharField(max_length=16, choices=Scope.choices)
    key = models.CharField(max_length=255, blank=True, default="", db_default="")
    code = models.CharField(max_length=128, blank=True, default="", db_default="")
    message = models.TextField()
    until = models.DateTimeField(null=True, help_text="Empty: until an operator clears it.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["blueprint", "scope", "key"], name="one_error_per_offer")]

    def __str__(self) -> str:
        return f"{self.blueprint}: {self.scope} {self.key}: {self.message}"
