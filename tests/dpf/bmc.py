"""The BMC of a card that can be switched and wiped: the double of a card's BMC, with power and BIOS settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.bmc.bluefield import Bluefield, Reply, small
from tests.bmc.double import Server, certificate

SYSTEM = "/redfish/v1/Systems/Bluefield"
BIOS, SETTINGS = f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
PASSWORD = "A-right.Password7"


@dataclass(kw_only=True)
class CardBmc(Bluefield):
    """A BMC whose resets have effects."""

    running: bool = True
    """Whether a system is on the card."""
    reads: int = 2
    """Reads of the BIOS settings for which the firmware erases, before it takes the attributes back."""
    resets: list[str] = field(default_factory=list)
    ignores: tuple[str, ...] = ()
    """Kinds of reset that are accepted and have no effect."""
    forgets: bool = False
    """Whether settings are accepted and dropped."""
    on_off: Callable[[], None] = lambda: None
    _erasing: int = 0

    def _of_session(self, method: str, path: str, token: str, given: Any) -> Reply:
        if method == "POST" and path == RESET:
            return self._reset(given["ResetType"])
        if method == "PATCH" and path == SETTINGS:
            if not self.forgets:
                self.resources[SETTINGS]["Attributes"] |= given["Attributes"]
            return "204 No Content", None, []
        if method == "GET" and path == BIOS and self._erasing:
            self._erasing -= 1
            if not self._erasing:
                self.running = False
                self.resources[BIOS]["Attributes"] |= {"EmmcWipe": False, "Nvme Wipe": False}
        return super()._of_session(method, path, token, given)

    def _reset(self, kind: str) -> Reply:
        self.resets.append(kind)
        if kind not in self.ignores:
            off = kind in ("ForceOff", "GracefulShutdown")
            self.resources[SYSTEM]["PowerState"] = "Off" if off else "On"
            if off:
                self.on_off()
            else:
                self._boot()
        return "204 No Content", None, []

    def _boot(self) -> None:
        assert not self._erasing, "a card must not be restarted while its firmware erases"
        pending = self.resources[SETTINGS]["Attributes"]
        if pending:
            self.resources[BIOS]["Attributes"] |= pending
            self._erasing = self.reads
            self.resources[SETTINGS]["Attributes"] = {}


def resources(serial: str) -> dict[str, Any]:
    """Return the resources of a BMC with attributes for wiping, one of them with a blank as older firmware has it."""
    found = small(serial)
    found[BIOS]["Attributes"] |= {"EmmcWipe": False, "Nvme Wipe": False}
    found[BIOS]["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": SETTINGS}}
    found[SETTINGS] = {"@odata.id": SETTINGS, "Id": SETTINGS, "Name": SETTINGS, "Attributes": {}}
    return found


@contextlib.contextmanager
def card_bmc(serial: str) -> Iterator[CardBmc]:
    """Run the BMC of a card with this serial number."""
    context, fingerprint, ca = certificate("127.0.0.1")
    bmc = CardBmc(resources=resources(serial), fingerprint=fingerprint, ca=ca)
    bmc.set(PASSWORD)
    bmc.server = Server(bmc, context)
    bmc.server.start()
    try:
        yield bmc
    finally:
        bmc.server.stop()
