"""Stored blueprints, credentials, and remembered errors."""

from __future__ import annotations

from typing import Any

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField

_NAME = RegexValidator(
    r"^[a-z0-9][a-z0-9._-]*$", "Use lowercase letters, digits, '.', '_' and '-'. Start with a letter or digit."
)


class Present(models.Manager["Blueprint"]):
    """The blueprints that were not removed. Related rows still find removed blueprints."""

    def get_queryset(self) -> models.QuerySet[Blueprint]:
        """Return the blueprints that were not removed."""
        return super().get_queryset().filter(removed_at=None)


class Blueprint(models.Model):
    """Instructions to build, use, watch, update, clean and destroy one type of resource in one place.

    A blueprint that had resources stays as a row after its removal, for their history; its name can be used again.
    """

    class Audience(models.TextChoices):
        EVERYONE = "everyone", "all users"
        AUTHORIZED = "authorized", "authorized users and groups only"

    name = models.CharField(max_length=63, validators=[_NAME])
    kind = models.CharField(max_length=63, help_text="The implementation that this blueprint uses.")
    resource_type = models.CharField(max_length=63, editable=False, db_index=True)
    config: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    order = models.IntegerField(default=100, help_text="Blueprints with lower numbers are tried first.")
    enabled = models.BooleanField(default=True, db_default=True)
    drained = models.BooleanField(
        default=False, db_default=False, help_text="Build no new resources, and remove idle ones."
    )
    audience = models.CharField(max_length=16, choices=Audience.choices, default=Audience.AUTHORIZED)
    generation = models.PositiveIntegerField(
        default=1, db_default=1, editable=False, help_text="Incremented when the kind or config changes."
    )
    max_resources = models.PositiveIntegerField(
        "maximum resources", null=True, blank=True, help_text="Leave empty for no limit."
    )
    min_ready = models.PositiveIntegerField(
        "minimum ready", default=0, db_default=0, help_text="Number of idle resources to keep ready."
    )
    max_builds = models.PositiveIntegerField(
        "maximum builds",
        default=10,
        db_default=10,
        validators=[MinValueValidator(1)],
        help_text="Maximum number of concurrent builds.",
    )
    max_outdated = models.PositiveIntegerField(
        "maximum outdated",
        default=1,
        db_default=1,
        help_text="Maximum number of outdated resources that are updated or replaced at the same time. 0: none.",
    )
    idle_timeout = models.DurationField(
        null=True, blank=True, help_text="Remove a resource that has been idle for this long."
    )
    max_lifetime = models.DurationField(
        "maximum lifetime",
        null=True,
        blank=True,
        help_text="A resource older than this gets no new leases, and is removed when its leases have ended.",
    )
    check_interval = models.DurationField(null=True, blank=True, help_text="Time between health checks.")
    discovery_interval = models.DurationField(
        null=True, blank=True, help_text="Time between discoveries; empty for that of the kind."
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
                violation_error_message="A blueprint with this name already exists.",
            )
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name


class Credential(models.Model):
    """Secrets that blueprints name in their config. They are encrypted and never shown again."""

    name = models.CharField(max_length=63, unique=True, validators=[_NAME])
    secrets = EncryptedJSONField(default=dict, help_text='A JSON object, for example {"private_key": "..."}.')
    note = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name


class RememberedError(models.Model):
    """A remembered error of an offer, a zone, a quota or a blueprint, and until when it is in force."""

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
    until = models.DateTimeField(null=True, help_text="Empty: remembered until an operator clears it.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["blueprint", "scope", "key"], name="one_error_per_offer")]

    def __str__(self) -> str:
        return f"{self.blueprint}: {self.scope} {self.key}: {self.message}"
