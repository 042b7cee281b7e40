"""Orphans: objects at a provider that have our tags but no row of their own."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from blueprints.models import Blueprint


class Search(models.Model):
    """The search for orphans of one blueprint. The worker that searches holds a token, as for a step."""

    blueprint = models.OneToOneField(Blueprint, primary_key=True, on_delete=models.CASCADE, related_name="search")
    due_at = models.DateTimeField(db_default=Now())
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the last successful search ended.")
    found = models.PositiveIntegerField(default=0, db_default=0)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last search failed.")

    class Meta:
        verbose_name = "orphan search"
        verbose_name_plural = "orphan searches"

    def __str__(self) -> str:
        return f"search for orphans of {self.blueprint}"


class Stray(models.Model):
    """An orphan: an object at a provider that has our tag but no row, or whose resource is gone.

    If it is provably ours and was seen twice, some time apart, it is destroyed or adopted. `position` and `memo`
    record the progress of its destruction.
    """

    class Proof(models.TextChoices):
        PROVEN = "proven"
        UNNAMED = "unnamed"
        """The proof is valid, but the name is only a tag, which a copy of the object would also have."""
        SUSPECT = "suspect"
        """The object has our tag with an invalid proof or under another name. It is never changed."""

    class Wanted(models.TextChoices):
        DESTROY = "destroy"
        ADOPT = "adopt"

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="strays")
    key = models.CharField(max_length=255)
    epoch = models.PositiveIntegerField()
    resource_number = models.PositiveBigIntegerField()
    """The id of the resource for which the object was created. There may be no such row."""
    proof = models.CharField(max_length=16, choices=Proof.choices, default="proven", db_default="proven")
    what = models.CharField(max_length=255, blank=True, default="", db_default="")
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """The location, type and components of the object, as reported by the provider."""
    price = models.FloatField(null=True, blank=True, help_text="US dollars per hour, if known.")
    made_at = models.DateTimeField(null=True, blank=True)
    first_seen_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    sightings = models.PositiveIntegerField("times seen", default=1, db_default=1)
    wanted = models.CharField(
        "requested action", max_length=16, choices=Wanted.choices, blank=True, default="", db_default=""
    )
    """The action that an operator has requested, or empty."""
    wanted_by = models.CharField("requested by", max_length=150, blank=True, default="", db_default="")
    message = models.TextField(blank=True, default="", db_default="")
    position = models.PositiveSmallIntegerField(default=0, db_default=0)
    memo: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))

    class Meta:
        verbose_name = "orphan"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["blueprint", "key"], name="stray_once")]

    def __str__(self) -> str:
        return self.key
