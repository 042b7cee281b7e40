"""Stop what runs on a card, by its BMC. Needs the extra `redfish`, so it is imported when it is used.

A session does one thing at a time; its caller stores the memo of each answer before it calls again. The resets are
those of NVIDIA's manual of the BMC (https://docs.nvidia.com/networking/display/bluefieldbmcv2404/reset+control):
ForceRestart resets the Arm cores, and GracefulShutdown works on BlueField-3 while its system runs. The captured
BlueField-3 lists ForceOff, too, and has the BIOS attribute EmmcWipe; NvmeWipe exists on cards with an SSD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.bluefield.reading import plain
from blueprints.bluefield.session import CardSession
from blueprints.bmc.errors import BmcLacks, BmcRefused
from blueprints.bmc.inspection import paths
from blueprints.bmc.redfish_tree import member
from blueprints.bmc.values import PowerAction, PowerState

_WIPES = ("emmcwipe", "nvmewipe")
_LOOK, _PATIENCE = 5.0, 12
"""Seconds between two looks, and the looks after which a reset that had no effect is asked for again."""


class ParkingSession(CardSession):
    """A session that stops and erases the system of a card."""

    def switch_off(self, memo: Json) -> Answer:
        """Stop the Arm cores, and wait until the BMC reports them as off. Asks the system only if force fails."""
        return self._switched(memo, PowerState.OFF, (PowerAction.OFF, PowerAction.SHUTDOWN))

    def switch_on(self, memo: Json) -> Answer:
        """Start the Arm cores if they are off, and wait until they are on."""
        return self._switched(memo, PowerState.ON, (PowerAction.ON, PowerAction.RESET))

    def _switched(self, memo: Json, wanted: PowerState, actions: Sequence[PowerAction]) -> Answer:
        now = self.power()
        if now is wanted:
            return Ready(log=f"The BMC reports the card as {wanted}.")
        looks = int(memo.get("looks", 0))
        if looks % _PATIENCE == 0:
            offered = [one for one in actions if one in self.power_actions()]
            if not offered:
                raise BmcLacks(f"{self._here} offers none of the changes of power {', '.join(actions)}.")
            try:
                self.switch(offered[looks // _PATIENCE % len(offered)])
            except BmcRefused:
                if len(offered) == 1:
                    raise
                looks += _PATIENCE - 1  # the other one is next
        sentence = f"The BMC reports the card as {now}, and will be {wanted}."
        return Wait(after=_LOOK, memo={**memo, "looks": looks + 1}, sentence=sentence)

    def wipe(self, memo: Json) -> Answer:
        """Let the firmware erase the storage of the card at a restart, and wait until it has done so.

        The firmware takes the attributes back when it erases. From then on the card is not restarted any more.
        """
        stage, looks = memo.get("stage", "set"), int(memo.get("looks", 0))
        if stage == "set":
            settings = self.settings()
            names = [name for name in settings if plain(name) in _WIPES]
            if not names:
                raise BmcLacks(f"{self._here} has neither of the BIOS attributes EmmcWipe and NvmeWipe.")
            if _wanted(settings) and not _wanted(self._pending()):
                # The memo was lost by a failure or a limit. To ask again would restart the card while it erases.
                erases = "The firmware of the card erases its storage."
                return Wait(after=_LOOK, memo={**memo, "stage": "restart", "looks": 0}, sentence=erases)
            self.set_settings(dict.fromkeys(names, True))
            return Wait(after=0.0, memo={**memo, "stage": "confirm"}, sentence="The card will be erased.")
        pending = _wanted(self._pending())
        if stage == "confirm":
            if not pending:
                raise BmcRefused(f"{self._here} accepted that the storage is erased, but does not show it as pending.")
            # Stored before the restart: what is not pending after it was taken by the firmware.
            return Wait(after=0.0, memo={**memo, "stage": "restart", "looks": 0}, sentence="The card will be erased.")
        if not pending and not _wanted(self.settings()):
            return Ready(log="The firmware of the card has erased its storage.")
        if pending and looks % _PATIENCE == 0:
            off = self.power() is PowerState.OFF and PowerAction.ON in self.power_actions()
            self.switch(PowerAction.ON if off else PowerAction.RESET)
        sentence = "The card restarts, and its firmware erases its storage."
        return Wait(after=_LOOK, memo={**memo, "looks": looks + 1}, sentence=sentence)

    def _pending(self) -> Mapping[str, Any]:
        """Return the BIOS attributes that the next boot changes."""
        where = paths(member(self._bios(), "@Redfish.Settings").get("SettingsObject"))
        if not where:
            raise BmcLacks(f"{self._here} does not show which BIOS attributes the next boot changes.")
        return member(self._client.get(where[0]), "Attributes")


def _wanted(settings: Mapping[str, Any]) -> bool:
    return any(value is True for name, value in settings.items() if plain(name) in _WIPES)
