"""Read facts about a card from the answers of its BMC. Pure functions that call no BMC.

Written after the captured BlueField-3 (BMC firmware 24.07): its serial and part numbers end in blanks, its model is in
Chassis/Card1, its mode in a BIOS attribute while the OEM resource has an empty one, names of attributes have blanks
that newer firmware lacks, and versions are in FirmwareInventory. Any of it may be missing, as firmware differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blueprints.answers import Health, Json
from blueprints.bluefield.cards import generation_of
from blueprints.bmc import inspection
from blueprints.bmc.inspection import text

_MODES = {"dpumode": "dpu", "nicmode": "nic"}
_NO_VALUE = ("", "unavailable", "unknown")
_NO_IMAGE = re.compile(r"\Ano valid ", re.IGNORECASE)
"""Words that the firmware inventory has in place of a version if there is no image, such as a golden image."""
MOST = 100
"""Components of the firmware inventory, and values of each list, that are kept."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card as its BMC describes it. Unknown values are empty."""

    serial: str = ""
    product: str = ""
    generation: str = ""
    part_number: str = ""
    psid: str = ""
    mode: str = ""
    """`dpu` or `nic`."""
    bmc_version: str = ""
    system: str = ""
    """The operating system of the card, as it was installed: the component DPU_OS."""
    firmware: Mapping[str, str] = field(default_factory=dict)
    """Component -> version."""
    resets: tuple[str, ...] = ()
    """Changes of power that the BMC offers."""
    protocols: tuple[str, ...] = ()
    """Protocols by which the BMC fetches an image: SCP, HTTP, HTTPS."""
    health: str = ""
    missing: tuple[str, ...] = ()

    def facts(self) -> Json:
        """Return the facts that are kept about the card."""
        return {
            "product": self.product, "psid": self.psid, "system": self.system, "firmware": dict(self.firmware),
            "resets": list(self.resets), "protocols": list(self.protocols),
        }  # fmt: skip

    def attributes(self) -> Json:
        """Return the attributes that the BMC knows."""
        found = {
            "model": self.generation, "serial": self.serial, "part_number": self.part_number, "mode": self.mode,
            "bmc_version": self.bmc_version,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def card(
    found: inspection.Resources, settings: Mapping[str, Any], oem: Mapping[str, Any],
    *, resets: Sequence[str], protocols: Sequence[str], missing: Sequence[str] = (),
) -> Card:  # fmt: skip
    """Return the card that the resources of its BMC describe.

    `settings` are the BIOS attributes, and `oem` is NVIDIA's part of the system.
    """
    known = inspection.inventory(found)
    chassis = inspection.main_chassis(found.chassis, found.system)
    part_number = text(chassis.get("PartNumber")) or text(found.system.get("PartNumber")) or known.sku
    firmware = {one.component: one.version for one in known.firmware if not _NO_IMAGE.match(one.version)}
    return Card(
        serial=known.serial, product=known.model, part_number=part_number,
        generation=generation_of(known.model, part_number), psid=firmware.get("DPU_BOARD", ""),
        mode=mode(settings, oem), bmc_version=known.bmc_version, system=firmware.get("DPU_OS", ""),
        firmware=dict(sorted(firmware.items())[:MOST]), resets=_few(resets), protocols=_few(protocols),
        health=known.health or inspection.health(chassis), missing=(*known.missing, *missing),
    )  # fmt: skip


def setting(settings: Mapping[str, Any], name: str) -> Any:
    """Return a BIOS attribute, whether or not the firmware writes its name with blanks; None if it has no value."""
    wanted = plain(name)
    found = next((value for key, value in settings.items() if plain(key) == wanted), None)
    return None if isinstance(found, str) and found.strip().lower() in _NO_VALUE else found


def mode(settings: Mapping[str, Any], oem: Mapping[str, Any]) -> str:
    """Return whether the card is a DPU or a mere NIC: `dpu`, `nic`, or empty if the BMC does not say."""
    for value in (setting(settings, "NicMode"), oem.get("Mode")):
        if isinstance(value, str) and (made := _MODES.get(plain(value))):
            return made
    return ""


def judged(state: str) -> Health | None:
    """Return the health of a card; None if the BMC does not say."""
    match state:
        case "failed":
            return Health(state="failed", reason="The BMC reports the card as failed.")
        case "degraded":
            return Health(state="degraded", reason="The BMC reports the card as degraded.")
        case "ok":
            return Health()
    return None


def _few(values: Sequence[str]) -> tuple[str, ...]:
    """Return the first values of a list, in which a BMC may send anything."""
    return tuple(filter(None, map(text, values[:MOST])))


def plain(name: str) -> str:
    """Return the name of a BIOS attribute in the form in which those of all firmware are equal."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
