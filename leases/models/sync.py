"""The schedule of discovery: one row for each blueprint whose kind supports discovery."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from blueprints.models import Blueprint


class Sync(models.Model):
    """The discovery of the resources of one blueprint. The worker that runs it holds a token, as for a step."""

    blueprint = models.OneToOneField(Blueprint, primary_key=True, on_delete=models.CASCADE, related_name="sync")
    due_at = models.DateTimeField(db_default=Now())
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When the last successful discovery ended.")
    found = models.PositiveIntegerField(default=0, db_default=0)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the last discovery failed.")

    class Meta:
        verbose_name = "discovery"
        verbose_name_plural = "discoveries"

    def __str__(self) -> str:
        return f"discovery of {self.blueprint}"
