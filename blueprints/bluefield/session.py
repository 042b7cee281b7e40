"""A session with the BMC of a card. Needs the extra `redfish`, so it is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.bluefield import reading
from blueprints.bmc import inspection
from blueprints.bmc.inspection import paths, text
from blueprints.bmc.redfish_session import RedfishSession
from blueprints.bmc.redfish_tree import UNREADABLE


class CardSession(RedfishSession):
    """A Redfish session with the BMC of a card."""

    @property
    def must_change_password(self) -> bool:
        """Whether the BMC does nothing else until the account has another password."""
        return self._client.must_change_password

    def set_password(self, password: str) -> None:
        """Change the password of the session's account."""
        service = next(iter(paths(self._tree.root.get("AccountService"))), "/redfish/v1/AccountService")
        # A session that may only change the password can read no list of accounts. Ids are names at OpenBMC.
        self._client.set_password(f"{service.rstrip('/')}/Accounts/{self._client.username}", password)

    def card(self) -> reading.Card:
        """Read everything about the card. What cannot be read is named in `missing`."""
        missing: list[str] = []
        found = self._tree.everything()
        settings = self._tried(self.settings, missing)
        return reading.card(
            found, settings, self._oem() if not reading.mode(settings, {}) else {},
            resets=self._resets(missing), protocols=self._protocols(missing), missing=missing,
        )  # fmt: skip

    def state(self) -> tuple[str, str]:
        """Return the serial number and the health of the card, by few requests."""
        system = self._tree.system()
        chassis = inspection.main_chassis(self._tree.chassis(system, []), system)
        serial = text(system.get("SerialNumber")) or text(chassis.get("SerialNumber"))
        return serial, inspection.health(system) or inspection.health(chassis)

    def _oem(self) -> Mapping[str, Any]:
        oem = f"{self._tree.path}/Oem/Nvidia"
        return next(self._tree.resources([oem], []), {})

    def _resets(self, missing: list[str]) -> list[str]:
        try:
            return sorted(one.value for one in self.power_actions())
        except UNREADABLE as error:
            missing.append(error.message)
            return []

    def _protocols(self, missing: list[str]) -> list[str]:
        services = self._tree.resources(paths(self._tree.root.get("UpdateService")), missing)
        return [
            one
            for service in services
            for one in self._allowed(service, "#UpdateService.SimpleUpdate", "TransferProtocol")[1]
        ]

    def _tried(self, read: Any, missing: list[str]) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = read()
        except UNREADABLE as error:
            missing.append(error.message)
            return {}
        return found
