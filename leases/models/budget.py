"""Budgets: limits on the hourly cost of users, groups and blueprints."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from blueprints.models import Blueprint

_HOLDERS = ("user", "group", "blueprint")


def _names_one() -> Q:
    """Return the condition that exactly one of user, group and blueprint is set."""
    named = Q()
    for holder in _HOLDERS:
        named |= Q(**{f"{other}__isnull": other != holder for other in _HOLDERS})
    return named


class Budget(models.Model):
    """A limit on the hourly cost of a user, group or blueprint.

    A user's budget limits the cost of the user's leases, a group's budget that of the leases charged to the group,
    and a blueprint's budget that of all resources that the blueprint has built.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE)
    group = models.OneToOneField(Group, null=True, blank=True, on_delete=models.CASCADE)
    blueprint = models.OneToOneField(Blueprint, null=True, blank=True, on_delete=models.CASCADE)
    max_hourly = models.FloatField(help_text="US dollars per hour.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=_names_one(), name="budget_names_one"),
            models.CheckConstraint(condition=Q(max_hourly__gte=0), name="budget_is_an_amount"),
        ]

    def __str__(self) -> str:
        return f"budget of {self.user or self.group or self.blueprint}"
