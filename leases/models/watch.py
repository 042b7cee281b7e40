"""Watches of providers: one row per kind, credential and place."""

from __future__ import annotations

from django.db import models


class ProviderWatch(models.Model):
    """The watch of one place at a provider. One worker at a time watches it, holding a token as for a step."""

    kind = models.CharField(max_length=63)
    credential = models.CharField(max_length=255, blank=True, default="", db_default="")
    place = models.CharField(max_length=255, blank=True, default="", db_default="")
    token = models.UUIDField(null=True, blank=True)
    token_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=255, blank=True, default="", db_default="", help_text="Worker that watches.")
    bookmark = models.TextField(blank=True, default="", db_default="")
    """From where the watch resumes; stored in the transaction that wakes the steps of the changes before it."""
    started_at = models.DateTimeField(null=True, blank=True, help_text="Since when the worker has watched.")
    event_at = models.DateTimeField(null=True, blank=True, help_text="When a change was last reported.")
    listed_at = models.DateTimeField(null=True, blank=True, help_text="When a listing last ended.")
    failing_since = models.DateTimeField(null=True, blank=True)
    message = models.TextField(blank=True, default="", db_default="", help_text="Why the watch fails.")

    class Meta:
        verbose_name = "watch"
        verbose_name_plural = "watches"
        constraints = [models.UniqueConstraint(fields=["kind", "credential", "place"], name="watch_place_once")]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.credential, self.place)))
