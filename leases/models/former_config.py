"""Configs that blueprints had when resources were built or updated that still exist."""

from __future__ import annotations

from typing import Any

from django.db import models

from blueprints.models import Blueprint


class FormerConfig(models.Model):
    """The kind and config of one earlier generation of a blueprint, kept while a resource is of that generation.

    A comparison with the present config shows whether an update disturbs leases.
    """

    blueprint = models.ForeignKey(Blueprint, on_delete=models.CASCADE, related_name="former_configs")
    generation = models.PositiveIntegerField()
    kind = models.CharField(max_length=63)
    config: models.JSONField[Any, Any] = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["blueprint", "generation"], name="former_config_once")]

    def __str__(self) -> str:
        return f"generation {self.generation} of {self.blueprint}"
