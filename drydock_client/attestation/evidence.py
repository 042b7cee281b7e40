"""Evidence: a quote with everything that is needed to verify it again, as a JSON file.

A file states what was asked and what a server found. `verify_evidence` believes neither: it computes the report data
from nonce and lease, and every check anew.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from drydock_client.attestation.quote import LARGEST_QUOTE, AttestationError
from drydock_client.attestation.verdict import Verdict
from drydock_client.attestation.verification import Expected, lease_context, nonce_of, verify

FORMAT = "drydock-tdx-evidence-1"
LARGEST_FILE = 256 << 10
"""The most bytes that a file of evidence may have."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A quote of the machine of a lease, with the nonce that it answers."""

    quote: bytes
    nonce: bytes = b""
    lease: int = 0
    """The lease whose machine was asked; 0 if the quote comes from elsewhere."""
    provider: str = ""
    """The name of the kernel's source of the quote, as the machine said."""
    collected_at: dt.datetime | None = None
    """When the quote was received, as the server said."""

    @property
    def context(self) -> bytes:
        """The context that follows the nonce in the report data."""
        return lease_context(self.lease) if self.lease else b""


def write_evidence(evidence: Evidence) -> bytes:
    """Return evidence as the content of a file."""
    said: dict[str, Any] = {
        "format": FORMAT, "lease": evidence.lease, "nonce": evidence.nonce.hex(), "provider": evidence.provider,
        "collected_at": evidence.collected_at.isoformat() if evidence.collected_at else None,
        "quote": base64.b64encode(evidence.quote).decode(),
    }  # fmt: skip
    return json.dumps(said, indent=2).encode() + b"\n"


def read_evidence(content: bytes) -> Evidence:
    """Read a file of evidence, or a bare quote. Raises AttestationError."""
    if len(content) > LARGEST_FILE:
        raise AttestationError("evidence", f"The file has {len(content)} bytes; at most {LARGEST_FILE} are read.")
    if not content.lstrip().startswith(b"{"):
        return Evidence(quote=content)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise AttestationError("evidence", "The file is neither JSON nor a quote.") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise AttestationError("evidence", f"The file is not of the format {FORMAT}.")
    return _evidence(said)


def _evidence(said: Mapping[str, Any]) -> Evidence:
    nonce, lease, provider, at = (said.get(name) for name in ("nonce", "lease", "provider", "collected_at"))
    if not isinstance(lease, int) or isinstance(lease, bool) or not 0 <= lease < 1 << 63:
        raise AttestationError("evidence: lease", "It is not a number.")
    if not isinstance(nonce, str) or not isinstance(provider, str):
        raise AttestationError("evidence", "nonce and provider must be text.")
    return Evidence(
        quote=_quote(said.get("quote")), nonce=nonce_of(nonce) if nonce else b"", lease=lease, provider=provider[:100],
        collected_at=time_of(at),
    )  # fmt: skip


def _quote(given: Any) -> bytes:
    try:
        found = base64.b64decode(given, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise AttestationError("evidence: quote", "It is not base64.") from None
    if len(found) > LARGEST_QUOTE:
        raise AttestationError("evidence: quote", f"It has {len(found)} bytes; at most {LARGEST_QUOTE} are read.")
    return found


def time_of(given: Any) -> dt.datetime | None:
    """Read a time of a file of evidence, which may be missing. Raises AttestationError."""
    if given is None:
        return None
    try:
        found = dt.datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise AttestationError("evidence: collected_at", "It is not a time.") from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def verify_evidence(evidence: Evidence, expected: Expected, at: dt.datetime) -> Verdict:
    """Verify evidence for a time, with the nonce and the lease that it states.

    A nonce in `expected` takes the place of the stated one: whoever chose the nonce proves freshness with it. Raises
    what `verify` raises.
    """
    nonce = expected.nonce or evidence.nonce
    return verify(evidence.quote, replace(expected, nonce=nonce, context=evidence.context), at)
