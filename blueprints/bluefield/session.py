"""A session with the BMC of a card. Needs the extra `redfish`, so it is imported when it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from blueprints.bluefield import reading
from blueprints.bmc import inspection, redfish_readings
from blueprints.bmc.errors import BmcAnswerInvalid, BmcLacks, BmcRefused
from blueprints.bmc.inspection import paths, text
from blueprints.bmc.redfish_session import RedfishSession, started
from blueprints.bmc.redfish_tree import UNREADABLE, member
from blueprints.bmc.values import BmcTask
from drydock.core.errors import InvalidRequest
from interfaces.httpd import fingerprint
from interfaces.keys import PublicKey

_RUNNING = frozenset({"osisrunning", "osrunning"})
_SYSTEM = "redfish/v1/UpdateService/FirmwareInventory/DPU_OS"
"""The component through which a whole image is installed, as NVIDIA's documents write it."""
_EXCHANGE = "#NvidiaUpdateService.PublicKeyExchange"
_MOST_TRUSTED, _ROOM = 100, 10
"""Certificates of the trust store that are read, and for how many OpenBMC has room unless it was built otherwise."""
_MOST_TASKS = 20
"""New tasks that are read in order to find one."""


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

    # The installation of an image

    def os_runs(self) -> bool | None:
        """Return whether the operating system of the card runs; None if the BMC does not report it."""
        progress = member(self._tree.system(), "BootProgress")
        said = [text(progress.get(name)).lower() for name in ("OemLastState", "LastState")]
        return any(one in _RUNNING for one in said) if any(said) else None

    def versions(self) -> Mapping[str, str]:
        """Return component -> version of the firmware inventory."""
        found = {inspection.component(one)[0]: text(one.get("Version")) for one in self._tree.firmware([])}
        return dict(sorted(found.items())[: reading.MOST])

    def hide(self, secret: str) -> None:
        """Keep a text, such as the path of an image, out of all messages of this session."""
        self._client.line.secrets.add(secret)

    def exchange_keys(self, address: str, host_key: str) -> str:
        """Let the BMC trust the host key of a server for SCP. Returns the key with which the BMC logs in there.

        A pair of address and key that the BMC knows is not added again, and the BMC's own key stays the same. Request
        and answer are described in https://github.com/NVIDIA/nvbmc-docs, `designs/oem/Nvidia`, and the answer has been
        read in https://github.com/NVIDIA/bmcweb, which sends the key as the argument of its first message.
        """
        actions = member(member(self._update_service(), "Actions"), "Oem")
        for offered in (member(actions, "Nvidia"), actions):
            target = member(offered, _EXCHANGE).get("target")
            if isinstance(target, str):
                break
        else:
            raise BmcLacks(f"{self._here} does not offer to exchange keys for SCP.")
        body = {"RemoteServerIP": address, "RemoteServerKeyString": host_key}
        for said in _arguments(self._client.post(target, body).body):
            with contextlib.suppress(InvalidRequest):
                return PublicKey.parse(said).line
        raise BmcAnswerInvalid(f"{self._here} did not send the public key with which it fetches by SCP.")

    def trust(self, certificate: str) -> None:
        """Let the BMC trust a certificate, as PEM, of a server from which it fetches by HTTPS, unless it does already.

        Raises BmcLacks if the BMC has no trust store.
        """
        known = self._trusted()
        if fingerprint(certificate) in known.values():
            return
        try:
            self._client.post(self._truststore(), {"CertificateString": certificate, "CertificateType": "PEM"})
        except BmcRefused as error:
            if len(known) < _ROOM:
                raise
            message = f"{error.message} Its trust store has {len(known)} certificates. Remove one that nobody needs."
            raise BmcRefused(message) from error

    def distrust(self, sha256: str) -> None:
        """Remove the certificate with this fingerprint from the trust store of the BMC, if both are there.

        Raises BmcLacks if the BMC lists certificates and does not offer to remove them.
        """
        try:
            trusted = self._trusted()
        except BmcLacks:
            return
        for path in [path for path, one in trusted.items() if one == sha256]:
            self._client.delete(path)

    def _trusted(self) -> dict[str, str]:
        """Return path -> fingerprint of the certificates that the BMC trusts; "" for one that cannot be understood."""
        found = {}
        for link in islice(self._client.members(self._truststore()), _MOST_TRUSTED):
            for path in paths(link):
                # One that is removed meanwhile is not there.
                with contextlib.suppress(BmcLacks):
                    found[path] = _fingerprint(self._client.get(path))
        return found

    def _truststore(self) -> str:
        return f"{self._manager()}/Truststore/Certificates"

    def _update_service(self) -> dict[str, Any]:
        return next(self._tree.resources(paths(self._tree.root.get("UpdateService")), None), {})

    def start_flash(self, address: str, protocol: str, username: str = "") -> BmcTask:
        """Let the BMC fetch an image and install it. `address` is host, port and path, without a scheme.

        `username` is the account of the server for SCP. Raises BmcAnswerLost if the installation may have begun.
        """
        service = self._update_service()
        target, protocols = self._allowed(service, "#UpdateService.SimpleUpdate", "TransferProtocol")
        if not target or (protocols and protocol not in protocols):
            offered = ", ".join(protocols) or "nothing"
            raise BmcLacks(f"{self._here} does not fetch images by {protocol}. It offers: {offered}.")
        body = {"TransferProtocol": protocol, "ImageURI": address, "Targets": [_SYSTEM]}
        return started(self._client.start(target, {**body, "Username": username} if username else body))

    def task(self, id: str) -> BmcTask:
        """Read a task by its path. Its message has no hidden texts."""
        return self._told(super().task(id))

    def _told(self, task: BmcTask) -> BmcTask:
        return replace(task, message=self._client.line.redacted(task.message))

    def find_flash(self, secret: str, before: Sequence[str]) -> BmcTask | None:
        """Return the task that installs the image with `secret` in its path, if the BMC lists it.

        Where tasks do not show their requests, it is the only new one that updates firmware. `before` are the tasks
        that there were before the request.
        """
        new = list(self._flashes(secret, [one for one in self.tasks() if one not in before]))
        found = [task for task, ours in new if ours] or [task for task, _ in new]
        return found[0] if len(found) == 1 else None

    def flashes(self, secret: str) -> bool:
        """Return whether a task runs that installs the image with `secret` in its path, or may do so."""
        return any(task.state == "running" for task, _ in self._flashes(secret, self.tasks()))

    def _flashes(self, secret: str, tasks: Sequence[str]) -> Iterator[tuple[BmcTask, bool]]:
        """Yield the newest tasks that may install an image, and whether they surely install this one."""
        for path in tasks[-_MOST_TASKS:]:
            try:
                answer = self._client.status(path)
            except UNREADABLE:
                continue
            task = self._told(redfish_readings.task(answer.body, path, answer.status))
            if task.updates is not False:
                yield task, secret in str(answer.body.get("Payload"))

    def bmc_rshim(self) -> bool | None:
        """Return whether the BMC has the rshim of the card, and not its host; None if it does not say."""
        said = member(next(self._tree.resources([self._manager_oem()], []), {}), "BmcRShim").get("BmcRShimEnabled")
        return said if isinstance(said, bool) else None

    def set_bmc_rshim(self, enabled: bool) -> None:
        """Let the BMC take the rshim of the card, or leave it. This takes a while."""
        self._client.patch(self._manager_oem(), {"BmcRShim": {"BmcRShimEnabled": enabled}})

    def _manager_oem(self) -> str:
        return f"{self._manager()}/Oem/Nvidia"

    def _manager(self) -> str:
        managers = self._tree.managers(self._tree.system(), [])
        path = next((paths(one)[0] for one in managers if paths(one)), "/redfish/v1/Managers/Bluefield_BMC")
        return path.rstrip("/")

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


def _fingerprint(certificate: Mapping[str, Any]) -> str:
    try:
        return fingerprint(str(certificate.get("CertificateString")))
    except ValueError:
        return ""


def _arguments(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of the messages in an answer."""
    infos = body.get("@Message.ExtendedInfo")
    for info in infos if isinstance(infos, list) else ():
        given = info.get("MessageArgs") if isinstance(info, dict) else None
        yield from (one for one in (given if isinstance(given, list) else ()) if isinstance(one, str))
