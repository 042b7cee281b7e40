"""Translations of a BMC's messages about the update of a card, with what can be done. Pure functions.

The messages are those that NVIDIA's own tool knows (https://github.com/Mellanox/dpu-update, `src/bf_dpu_update.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from blueprints.answers import Scope

Outcome = Literal["identical", "later", "failed"]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of a message."""

    outcome: Outcome
    sentence: str = ""
    code: str = "flash_failed"
    scope: Scope = Scope.OFFER


_KNOWN: Sequence[tuple[str, Meaning]] = (
    ("component image is identical", Meaning(outcome="identical", sentence="The card has this image already.")),
    (
        "wait for background copy operation",
        Meaning(outcome="later", sentence="The BMC still copies an earlier image in the background."),
    ),
    (
        "please provide server's public key using publickeyexchange",
        Meaning(
            outcome="failed", code="public_key_missing", scope=Scope.OPERATOR,
            sentence="The BMC does not know the public key of the server from which it fetches the image by SCP, or "
            "has another one for its address. Register the server with its ed25519 key, and remove other ones from the "
            "BMC by its action RevokeAllRemoteServerPublicKeys.",
        ),
    ),
    (
        "check and restart server's web service",
        Meaning(
            outcome="failed", code="web_unreachable",
            sentence="The BMC could not fetch the image from the web root. Let the web root listen on an address that "
            "the BMC can reach (`address` and `public_host` of its blueprint).",
        ),
    ),
    (
        "invalid fw package",
        Meaning(
            outcome="failed", code="image_for_other_card", scope=Scope.BLUEPRINT,
            sentence="The card refuses the image: it is damaged, or made for another generation of cards.",
        ),
    ),
)  # fmt: skip


def meaning(said: str) -> Meaning:
    """Return the meaning of the message of a failed task."""
    plain = " ".join(said.lower().split())
    for text, found in _KNOWN:
        if text in plain:
            return found
    return Meaning(outcome="failed", sentence=f"The BMC could not install the image: {said or 'it gave no reason'}")
