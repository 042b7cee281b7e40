"""The catalogue: every offer that was seen, and the polls that update it and the status of resources."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from blueprints.models.blueprint import Credential


class Listing(models.Model):
    """One offer for one account, as last polled: a row with the fields of `blueprints.offers.Offer`."""

    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="listings")
    kind = models.CharField(max_length=63)
    location = models.CharField(max_length=63)
    zone = models.CharField(max_length=63, blank=True, default="")
    type = models.CharField(max_length=128)
    market = models.CharField(max_length=16)
    price = models.FloatField(null=True, blank=True, help_text="US dollars per hour.")
    price_source = models.CharField(max_length=128, blank=True, default="")
    vcpus = models.PositiveIntegerField(default=0)
    ram_mib = models.PositiveBigIntegerField(default=0)
    arch = models.CharField(max_length=32, blank=True, default="")
    gpu_maker = models.CharField(max_length=32, blank=True, default="")
    gpu_model = models.CharField(max_length=64, blank=True, default="")
    gpu_count = models.PositiveIntegerField(default=0)
    gpu_memory_mib = models.PositiveBigIntegerField(default=0, help_text="Memory of each GPU.")
    local_disk_gib = models.PositiveBigIntegerField(default=0)
    network = models.CharField(max_length=128, blank=True, default="")
    confidential = ArrayField(models.CharField(max_length=16), default=list, blank=True)
    family = models.CharField(max_length=128, blank=True, default="")
    country = models.CharField(max_length=2, blank=True, default="")
    boot_seconds = models.FloatField(null=True, blank=True, help_text="Measured; otherwise as stated by the provider.")
    available = models.BooleanField(default=True, help_text="Whether the provider offered it at the last poll.")
    changed_at = models.DateTimeField(db_default=Now(), help_text="When this row last changed.")

    class Meta:
        verbose_name = "offer"
        ordering = ["price", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["credential", "kind", "location", "zone", "type", "market"], name="listing_once"
            )
        ]
        indexes = [
            models.Index(fields=["price", "id"], condition=Q(available=True), name="listing_price"),
            models.Index(
                fields=["gpu_model", "price"], condition=Q(available=True) & ~Q(gpu_model=""), name="listing_gpu"
            ),
            models.Index(fields=["vcpus", "ram_mib"], condition=Q(available=True), name="listing_size"),
            models.Index(
                fields=["price"], condition=Q(available=True) & ~Q(confidential=[]), name="listing_confidential"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.location} {self.zone} {self.type} {self.market}".replace("  ", " ")


class Allowance(models.Model):
    """One account's quota and its usage, as last polled: a row with the fields of `blueprints.offers.Allowance`."""

    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="allowances")
    kind = models.CharField(max_length=63)
    location = models.CharField(max_length=63, blank=True, default="")
    name = models.CharField(max_length=255)
    family = models.CharField(max_length=128, blank=True, default="")
    market = models.CharField(max_length=16, blank=True, default="")
    unit = models.CharField(max_length=16)
    limit = models.FloatField()
    used = models.FloatField(help_text="Total use of the account, including use outside Drydock.")
    read_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "provider quota"
        verbose_name_plural = "provider quotas"
        constraints = [
            models.UniqueConstraint(
                fields=["credential", "kind", "location", "name", "family", "market"], name="allowance_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.location}: {self.used:g} of {self.limit:g} {self.unit}"


class Reading(models.Model):
    """The poll of one place of one account. Only one worker at a time carries it out, under a token like a step's."""

    class What(models.TextChoices):
        PLACES = "places", "locations"
        INVENTORY = "inventory", "offers"
        STATUS = "status", "resource status"
        ALLOWANCES = "allowances", "provider quotas"

    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="readings")
    kind = models.CharField(max_length=63)
    what = models.CharField("data", max_length=16, choices=What.choices)
    place = models.CharField("location", max_length=63, blank=True, default="")
    country = models.CharField(max_length=2, blank=True, default="")
    due_at = models.DateTimeField(db_default=Now())
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the last successful poll ended.")
    found = models.PositiveIntegerField(default=0, db_default=0)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last poll failed.")

    class Meta:
        verbose_name = "account poll"
        verbose_name_plural = "account polls"
        constraints = [models.UniqueConstraint(fields=["credential", "kind", "what", "place"], name="reading_once")]
        indexes = [models.Index(fields=["due_at"], name="reading_due")]

    def __str__(self) -> str:
        return f"{self.what} of {self.credential} {self.place}".strip()
