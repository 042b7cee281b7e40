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


AGENT = "agent"
"""The scope of an agent's token. It reaches the addresses of agents and no others, and no other token reaches those."""


class Token(models.Model):
    """A secret that a program of a user, or an agent, sends instead of a password. Only its digest is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="drydock_tokens")
    agent = models.ForeignKey(
        "leases.Agent", models.CASCADE, null=True, blank=True, editable=False, related_name="tokens"
    )
    name = models.CharField(max_length=63, help_text="The purpose of the token.")
    scope = models.CharField(max_length=16, choices=Scope.choices, default=Scope.LEASE)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    tail = models.CharField(max_length=4, editable=False, help_text="The last four characters, for recognition.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    made_by: models.ForeignKey[Any, Any] = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, editable=False, related_name="made",
        help_text="The token with which this one was created. Revoking that token revokes this one.",
    )  # fmt: skip
    maker = models.CharField(
        max_length=150, blank=True, default="", db_default="", editable=False,
        help_text="The user who created the token, if that is not the token's user.",
    )  # fmt: skip
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(name="token_scope", condition=models.Q(scope__in=(*Scope.values, AGENT))),
            models.CheckConstraint(
                name="token_of_one",
                condition=models.Q(scope=AGENT, user=None, agent__isnull=False)
                | ~models.Q(scope=AGENT) & models.Q(user__isnull=False, agent=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} (…{self.tail})"

    @property
    def holder(self) -> int:
        """The id of the user whose token it is."""
        assert self.user_id is not None, "the token of an agent"
        return self.user_id

    def allows(self, scope: str) -> bool:
        """Return whether the token may be used for operations that require `scope`."""
        if AGENT in (self.scope, scope):
            return self.scope == scope
        return Scope.values.index(self.scope) >= Scope.values.index(scope)
