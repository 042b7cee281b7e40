"""Orphans: what stands at a provider under our name without a row of its own."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from blueprints.models import Blueprint


class Search(models.Model):
    """Looking for orphans through one blueprint: one at a time over all workers, under a token like a step's."""

    blueprint = models.OneToOneField(Blueprint, primary_key=True, on_delete=models.CASCADE, related_name="search")
    due_at = models.DateTimeField(db_default=Now())
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When it last succeeded.")
    found = models.PositiveIntegerField(default=0, db_default=0)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last one failed.")

    class Meta:
        verbose_name_plural = "searches"

    def __str__(self) -> str:
        return f"search for orphans of {self.blueprint}"


class Stray(models.Model):
    """A thing at a provider that bears our proof and has no row, or one that is gone. Destroyed when it was seen
    twice, some time apart; `position` and `memo` say how far that is."""

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="strays")
    key = models.CharField(max_length=255)
    epoch = models.PositiveIntegerField()
    resource_number = models.PositiveBigIntegerField()
    """The id that its resource had; there may be no such row."""
    first_seen_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    message = models.TextField(blank=True, default="", db_default="")
    position = models.PositiveSmallIntegerField(default=0, db_default=0)
    memo: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["blueprint", "key"], name="stray_once")]

    def __str__(self) -> str:
        return self.key
