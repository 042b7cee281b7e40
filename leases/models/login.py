"""Logins at places that lock accounts after a few refused ones."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class LoginAttempt(models.Model):
    """A login at a BMC that was refused, or whose answer is not known yet.

    The row is made before the login is tried and deleted when it is accepted. It belongs to no resource, so removing
    and registering a card again does not begin the count anew. Each place has a fixed number of slots: the unique
    constraint keeps the workers from trying more, and an old row makes way for the next attempt in its slot.
    """

    place = models.CharField(max_length=255)
    """Address and port of the BMC."""
    slot = models.PositiveSmallIntegerField()
    token = models.UUIDField()
    """Names the attempt, so that its worker strikes no other one."""
    refused = models.BooleanField(default=False, db_default=False)
    at = models.DateTimeField(db_default=Now())
    """When it was begun, or refused."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["place", "slot"], name="login_attempt_slot")]

    def __str__(self) -> str:
        return f"{self.place} {self.slot}"
