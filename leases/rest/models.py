"""API tokens. Only a digest of each is stored."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Scope(models.TextChoices):
    """The scopes of tokens. Each scope includes those before it."""

    READ = "read", "look at what its owner may see"
    LEASE = "lease", "ask for leases and work on them"
    OPERATE = "operate", "act as an operator, where its owner is one"


class Token(models.Model):
    """A secret that a program sends instead of its owner's password. Only its digest is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="drydock_tokens")
    name = models.CharField(max_length=63, help_text="What it is for.")
    scope = models.CharField(max_length=16, choices=Scope.choices, default=Scope.LEASE)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    tail = models.CharField(max_length=4, editable=False, help_text="The last letters, to recognize it by.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    made_by: models.ForeignKey[Any, Any] = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, editable=False, related_name="made",
        help_text="The token that it was made with; it is revoked with it.",
    )  # fmt: skip
    maker = models.CharField(
        max_length=150, blank=True, default="", db_default="", editable=False,
        help_text="Who made it, where that is somebody else than its user.",
    )  # fmt: skip
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(name="token_scope", condition=models.Q(scope__in=Scope.values)),
        ]

    def __str__(self) -> str:
        return f"{self.name} (…{self.tail})"

    def allows(self, scope: str) -> bool:
        """Return whether the token may be used for operations that require `scope`."""
        return Scope.values.index(self.scope) >= Scope.values.index(scope)
