"""Attestation evidence of leases: quotes of their machines, with what the verification found."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from leases.models.lease import Lease


class LeaseEvidence(models.Model):
    """A TDX or TPM quote of the machine of a lease.

    The row is never changed. A lease keeps its newest few rows, which are deleted together with it.
    """

    class Kind(models.TextChoices):
        """What made the quote."""

        TDX = "tdx", "Intel TDX"
        TPM = "tpm", "TPM 2.0"

    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.TDX, db_default=Kind.TDX)
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="evidence")
    collected_at = models.DateTimeField("collected", db_default=Now())
    actor = models.CharField("requested by", max_length=150)
    nonce = models.CharField(max_length=128, help_text="In hexadecimal digits.")
    chosen = models.BooleanField("nonce chosen by the caller", default=False, db_default=False)
    provider = models.CharField(max_length=100, help_text="The kernel's source of the quote, as the machine said.")
    quote = models.BinaryField()
    root = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="SHA-256 of the trusted root certificate of TDX.",
    )
    collateral = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="SHA-256 over the collateral that was used."
    )
    passed = models.BooleanField(help_text="Whether no check failed.")
    verdict: models.JSONField[Any, Any] = models.JSONField()
    """A `Verdict` or, for a TPM, a `TpmVerdict` of `drydock_client.attestation` as JSON."""

    class Meta:
        verbose_name = "attestation evidence"
        verbose_name_plural = "attestation evidence"

    def __str__(self) -> str:
        return f"attestation evidence {self.pk} of lease {self.lease_id}"
