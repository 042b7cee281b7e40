"""Identities of resources, by which two discoverers notice that they found the same thing."""

from __future__ import annotations

from django.db import models

from leases.models.resource import Resource


class ResourceIdentity(models.Model):
    """One identity of an existing resource, unique within the installation.

    A trigger deletes the row when the resource is gone, and another one refuses identities of resources that are gone.
    """

    resource = models.ForeignKey(Resource, on_delete=models.CASCADE, related_name="identities")
    namespace = models.CharField(max_length=63)
    value = models.CharField(max_length=255)

    class Meta:
        verbose_name = "identity"
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["namespace", "value"], name="thing_once")]

    def __str__(self) -> str:
        return f"{self.namespace} {self.value}"
