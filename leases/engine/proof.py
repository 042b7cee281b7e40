"""The tag that proves a thing outside to be ours: an HMAC over installation, epoch and resource."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

INSTALLATION, EPOCH, RESOURCE, PROOF = (
    "drydock-installation", "drydock-epoch", "drydock-resource", "drydock-proof",
)  # fmt: skip
BLUEPRINT = "drydock-blueprint"
"""Tells which blueprint of ours made it; the proof does not cover it."""


@dataclass(frozen=True, kw_only=True)
class Proven:
    """What a tag proves: made by this installation, in this epoch, for the resource of this id."""

    epoch: int
    resource: int


def tags(short: str, epoch: int, resource: int) -> dict[str, str]:
    """The tags of a resource, its proof among them."""
    return {
        INSTALLATION: short, EPOCH: str(epoch), RESOURCE: str(resource), PROOF: _proof(short, str(epoch), str(resource)),
    }  # fmt: skip


def proven(found: Mapping[str, str], short: str) -> Proven | None:
    """What the tags of a thing prove; None where they prove nothing to installation `short`."""
    epoch, resource = found.get(EPOCH, ""), found.get(RESOURCE, "")
    if found.get(INSTALLATION) != short or not (_number(epoch) and _number(resource)):
        return None
    if not hmac.compare_digest(found.get(PROOF, "").encode(), _proof(short, epoch, resource).encode()):
        return None
    return Proven(epoch=int(epoch), resource=int(resource))


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _proof(short: str, epoch: str, resource: str) -> str:
    key = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(key, f"{short}/{epoch}/{resource}".encode(), hashlib.sha256).hexdigest()[:40]
