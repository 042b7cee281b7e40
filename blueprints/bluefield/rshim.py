"""rshim: the channel from a host to the card in it, and what its file `misc` says. Pure functions.

The folder of an rshim, such as /dev/rshim0, has a file `boot`, to which an image is written, and a file `misc` with
settings and, at DISPLAY_LEVEL 2, the log of the card (https://github.com/Mellanox/rshim-user-space). Only one side, the
BMC or the host, has the rshim of a card; the other side is in drop mode. NVIDIA's `bfb-install` ends with success also
after a critical error, and never if the log stays silent. Therefore, only the log decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from blueprints.answers import Scope
from blueprints.bluefield.cards import generation_of
from blueprints.bluefield.messages import Meaning

_SETTING = re.compile(r"^([A-Z][A-Z_]{2,31})\s+(\S[^\r\n]*)$", re.MULTILINE)
_PERCENT = re.compile(r"\btotal\s+(\d{1,3})% complete")
_LONGEST = 300
_READY = "dpu is ready"
SENT = "INFO[HOST]: The image was sent."
"""The line that the job on the host adds once the card has taken the whole file. What was ready before was another
system."""
_FAILED: Sequence[tuple[str, Meaning]] = (
    (
        "in enhanced nic mode",
        Meaning(
            outcome="failed", code="nic_mode",
            sentence="The card is in NIC mode: it has no operating system that could be installed. Set its mode.",
        ),
    ),
    (
        "integrity_fail",
        Meaning(
            outcome="failed", code="image_for_other_card", scope=Scope.BLUEPRINT,
            sentence="The card refuses the image: it is damaged, or not signed for this card.",
        ),
    ),
    (
        "write error",
        Meaning(
            outcome="failed", code="stream_failed",
            sentence="The card stopped accepting the image. It may be in another mode, or be reset by another program.",
        ),
    ),
    ("critical error", Meaning(outcome="failed", sentence="The card reports a critical error.")),
    ("psc error", Meaning(outcome="failed", sentence="The card could not start the installer.")),
    ("installation failed", Meaning(outcome="failed", sentence="The installer in the image failed.")),
)  # fmt: skip
"""Signatures in the log after which a card does not become ready, in lower case."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """The settings in `misc`. An unknown number is None."""

    dropped: bool | None
    """Whether the other side has the rshim."""
    locked: bool
    """Whether the firmware of the card lets the host change nothing."""
    boot_mode: int | None
    mode: Literal["dpu", "nic", ""]
    generation: str
    """BlueField2, BlueField3 or BlueField4; empty if unknown."""
    part_number: str
    name: str
    """The device, such as pcie-0000:03:00.2."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How far an installation is, according to the log."""

    state: Literal["running", "ready", "failed"]
    last: str = ""
    """The last line of the log."""
    percent: int | None = None
    meaning: Meaning | None = None
    """The reason of a failure."""


def device(misc: str) -> Device | None:
    """Return the settings in the content of `misc`, or None if it names no device, which every driver does."""
    found = {name: value.strip() for name, value in _SETTING.findall(misc[: 1 << 16])}
    if "DEV_NAME" not in found:
        return None
    dropped, said = _number(found.get("DROP_MODE")), found.get("BF_MODE", "").lower()
    part_number = found.get("OPN_STR", "")
    return Device(
        dropped=None if dropped is None else dropped == 1, locked=_number(found.get("SECURE_NIC_MODE")) == 1,
        boot_mode=_number(found.get("BOOT_MODE")),
        mode="nic" if said.startswith("nic") else "dpu" if said.startswith("dpu") else "",
        generation=generation_of(found.get("DEV_INFO", ""), ""),
        part_number="" if part_number == "N/A" else part_number[:63], name=found.get("DEV_NAME", "")[:63],
    )  # fmt: skip


def _number(text: str | None) -> int | None:
    word = (text or "").split(maxsplit=1)[:1]
    return int(word[0]) if word and word[0].isdecimal() and len(word[0]) < 4 else None


def same_part(one: str, other: str) -> bool:
    """Return whether two part numbers may be the same, as rshim leaves out hyphens and may cut the end off."""
    first, second = (re.sub(r"[^A-Z0-9]", "", text.upper()) for text in (one, other))
    return not first or not second or first.startswith(second) or second.startswith(first)


def judge(log: str) -> Judgement:
    """Return how far an installation is, from the log since the image was sent.

    `Linux up` and `Rebooting...` come several times during an installation, so they decide nothing. After a failure a
    card may start its former system and say that it is ready, so a failure decides also if more follows.
    """
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST] if lines else ""
    for signature, found in _FAILED:
        for line in lines:
            if signature in line.lower():
                said = Meaning(
                    outcome="failed", code=found.code, scope=found.scope, sentence=f"{found.sentence} {line[:_LONGEST]}"
                )
                return Judgement(state="failed", last=last, meaning=said)
    after = lines[lines.index(SENT) + 1 :] if SENT in lines else []
    if any(_READY in line.lower() for line in after):
        return Judgement(state="ready", last=last, percent=100)
    percents = [min(100, int(one)) for one in _PERCENT.findall(log)]
    return Judgement(state="running", last=last, percent=percents[-1] if percents else None)
