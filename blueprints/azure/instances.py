"""Machines: create them, read them, and read what their guests publish (host keys, console)."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import urllib3

from blueprints.azure import account, api
from blueprints.azure.account import Account, Features
from blueprints.azure.api import Connection, Parts, part_name
from blueprints.azure.errors import refused, seconds
from blueprints.azure.market import Size
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Market, Order, Underway

DISK = "StandardSSD_LRS"
"""The disk type of orders that name none, because not every size supports the better types."""
_POWER = {
    "starting": Lifecycle.PENDING,
    "running": Lifecycle.RUNNING,
    "stopping": Lifecycle.STOPPING,
    "deallocating": Lifecycle.STOPPING,
    "stopped": Lifecycle.STOPPED,
    "deallocated": Lifecycle.STOPPED,
}
_PROVISIONING = {
    "creating": Lifecycle.PENDING,
    "deleting": Lifecycle.TERMINATING,
    "failed": Lifecycle.FAILED,
    "canceled": Lifecycle.FAILED,
}


def controller(of_size: frozenset[str]) -> str:
    """Return a machine's diskControllerType: NVMe for a size that supports nothing else.

    If the size also supports SCSI or does not report its controllers, Azure's own choice is right (REST reference,
    StorageProfile).
    """
    return "NVMe" if of_size == {"NVMe"} else ""


def machine_body(
    order: Order, nic: str, *, security: Mapping[str, Any] | None, controller: str = ""
) -> dict[str, Any]:  # fmt: skip
    """Return the body of a machine's PUT request.

    Disk, network card and address are deleted with it (deleteOption; the default keeps them).
    """
    if not order.user or not order.public_key:
        raise CloudError(Meaning.INVALID, "Azure requires a user and a public key for a Linux machine.")
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": order.type},
        "storageProfile": {"imageReference": account.image_reference(order.image), "osDisk": _disk(order)},
        "osProfile": _os(order),
        "networkProfile": {
            "networkInterfaces": [{"id": nic, "properties": {"primary": True, "deleteOption": "Delete"}}]
        },
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }
    if controller:
        properties["storageProfile"]["diskControllerType"] = controller
    if security:
        properties["securityProfile"] = dict(security)
    if order.market is Market.SPOT:
        # -1: as much as on demand. A figure has at most five decimals (REST reference, BillingProfile).
        most = -1 if order.max_price is None else round(order.max_price, 5)
        # Deallocated, it still tells that it was taken back; Drydock deletes it then.
        properties |= {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": most}}
    zones = {"zones": [order.zone]} if order.zone else {}
    return {"location": order.location, "tags": api.order_tags(order), "properties": properties, **zones}


def security_profile(order: Order, features: str | None, *, trusted_launch: bool) -> dict[str, Any] | None:
    """Return the securityProfile of an order. `features` are those of the image (`SecurityType`), or None if unknown.

    Raises CloudError INVALID for a confidential order with an image that does not support it.
    """
    said = (features or "").lower()
    if order.confidential:
        if features is not None and "confidential" not in said:
            raise CloudError(
                Meaning.NOT_OFFERED,
                f"The image {order.image} does not support confidential machines. Choose an image whose sku does, "
                "such as Canonical:ubuntu-24_04-lts:cvm.",
            )
        return _security("ConfidentialVM")
    return _security("TrustedLaunch") if trusted_launch and "trustedlaunch" in said else None


def instance(
    machine: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    cards: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, Mapping[str, Any]],
) -> Instance:
    """Convert a machine with its instance view (`status`) to the contract's form.

    The existing network cards and addresses are given as mappings from lowercase id.
    """
    about: Mapping[str, Any] = machine.get("properties") or {}
    statuses = [one for one in (status or {}).get("statuses") or () if isinstance(one, Mapping)]
    private, public = _addresses(about, cards, addresses)
    return Instance(
        id=str(about.get("vmId") or ""),
        key=str(machine.get("name") or ""),
        state=state(str(about.get("provisioningState") or ""), _power(statuses)),
        location=str(machine.get("location") or "").lower(),
        zone=next(iter(machine.get("zones") or ()), ""),
        type=str((about.get("hardwareProfile") or {}).get("vmSize") or ""),
        market=Market.SPOT if about.get("priority") == "Spot" else Market.ON_DEMAND,
        image=_image((about.get("storageProfile") or {}).get("imageReference") or {}),
        public_address=public,
        private_address=private,
        tags=dict(machine.get("tags") or {}),
        created_at=_time(about.get("timeCreated")),
        reason=_reason(statuses),
        preempted=about.get("priority") == "Spot" and any(_evicted(one) for one in statuses),
    )


def state(provisioning: str, power: str) -> Lifecycle:
    """Return the machine's state.

    A machine whose last operation failed is classified by its power state if there is one, because it may be running.
    """
    provisioning, power = provisioning.lower(), power.lower()
    if provisioning == "deleting":
        return Lifecycle.TERMINATING
    if provisioning == "creating":
        return Lifecycle.PENDING
    return _POWER.get(power) or _PROVISIONING.get(provisioning, Lifecycle.PENDING)


def failure(status: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the instance view's error of a failed operation as an error body, or None if there was none."""
    for one in status.get("statuses") or ():
        words = str(one.get("code") or "").split("/")
        if words[:2] == ["ProvisioningState", "failed"]:
            return {"code": words[2] if len(words) > 2 else "", "message": str(one.get("message") or "")}
    return None


def _disk(order: Order) -> dict[str, Any]:
    managed: dict[str, Any] = {"storageAccountType": order.disk_type or DISK}
    if order.confidential:
        managed["securityProfile"] = {"securityEncryptionType": "VMGuestStateOnly"}
    disk: dict[str, Any] = {
        "name": part_name("disk", order.key),
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "managedDisk": managed,
    }
    return disk if order.disk_gib is None else {**disk, "diskSizeGB": order.disk_gib}


def _os(order: Order) -> dict[str, Any]:
    key = {"path": f"/home/{order.user}/.ssh/authorized_keys", "keyData": order.public_key}
    profile: dict[str, Any] = {
        "computerName": order.key,
        "adminUsername": order.user,
        "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
    }
    if order.user_data:
        profile["customData"] = base64.b64encode(order.user_data.encode()).decode()
    return profile


def _security(security_type: str) -> dict[str, Any]:
    return {"securityType": security_type, "uefiSettings": {"secureBootEnabled": True, "vTpmEnabled": True}}


def _power(statuses: list[Mapping[str, Any]]) -> str:
    codes = (str(one.get("code") or "") for one in statuses)
    return next((code.split("/", 1)[1] for code in codes if code.startswith("PowerState/")), "")


def _reason(statuses: list[Mapping[str, Any]]) -> str:
    wrong = [one for one in statuses if one.get("level") == "Error" or _evicted(one)]
    return "; ".join(f"{one.get('code')}: {one.get('message') or one.get('displayStatus') or ''}" for one in wrong)[
        :500
    ]


def _evicted(status: Mapping[str, Any]) -> bool:
    words = f"{status.get('code')} {status.get('displayStatus')} {status.get('message')}".lower()
    return "evict" in words or "preempt" in words


def _addresses(
    about: Mapping[str, Any], cards: Mapping[str, Mapping[str, Any]], addresses: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Return the private and the public address of the first network card."""
    cards_of: Sequence[Mapping[str, Any]] = (about.get("networkProfile") or {}).get("networkInterfaces") or ({},)
    card = cards.get(str(cards_of[0].get("id") or "").lower()) or {}
    configured: Sequence[Mapping[str, Any]] = (card.get("properties") or {}).get("ipConfigurations") or ({},)
    settings = configured[0].get("properties") or {}
    there = addresses.get(str((settings.get("publicIPAddress") or {}).get("id") or "").lower()) or {}
    return str(settings.get("privateIPAddress") or ""), str((there.get("properties") or {}).get("ipAddress") or "")


def _image(found: Mapping[str, Any]) -> str:
    for key in ("id", "communityGalleryImageId", "sharedGalleryImageId"):
        if found.get(key):
            return str(found[key])
    version = found.get("exactVersion") or found.get("version")
    return ":".join(str(word or "") for word in (found.get("publisher"), found.get("offer"), found.get("sku"), version))


def _time(text: Any) -> dt.datetime | None:
    """Parse a time from ARM, which may have seven decimals of a second; Python supports six."""
    if not text:
        return None
    head, _, rest = str(text).replace("Z", "+00:00").partition(".")
    digits, plus, zone = rest.partition("+")
    return dt.datetime.fromisoformat(f"{head}.{digits[:6].ljust(6, '0')}{plus}{zone}" if rest else head)


TRIED_AGAIN = 3.0
"""Seconds until an operation is polled again, if Azure does not say when."""


class Instances:
    """The machines that a client's orders create."""

    def __init__(self, connection: Connection, parts: Parts, account: Account) -> None:
        self._connection, self._parts, self._account = connection, parts, account

    def create(self, order: Order, nic: str) -> Instance | Underway:
        """Create the machine with a PUT unless it exists."""
        api.check_order(order)
        size, features = self.suiting(order)
        said = None if features is None else features.security
        security = security_profile(order, said, trusted_launch=size.trusted_launch)
        body = machine_body(order, nic, security=security, controller=controller(size.controllers))
        try:
            _, headers = self._parts.put("machine", order.key, body, only_new=True)
        except CloudError as error:
            if error.meaning is not Meaning.CONFLICT or self.machine(order.key) is None:
                raise
            return self._there(order)
        return _underway(headers.get("Azure-AsyncOperation", ""), seconds(headers, TRIED_AGAIN))

    def created(self, order: Order, operation: str) -> Instance | Underway:
        """Poll the operation or, if there is none, the machine itself."""
        if not operation:
            return self._there(order)
        try:
            answer, headers = self._connection.ask("GET", operation, doing="read the operation")
        except CloudError as error:
            # Azure forgets operations after a while; the machine itself knows too.
            if error.meaning is not Meaning.NOT_FOUND:
                raise
            return self._there(order)
        if answer.get("status") in ("Failed", "Canceled"):
            raise refused(answer.get("error") or {}, f"make {order.key}")
        if answer.get("status") != "Succeeded":
            return _underway(operation, seconds(headers, TRIED_AGAIN), answer.get("percentComplete"))
        return self._there(order)

    def machine(self, key: str) -> Mapping[str, Any] | None:
        """Return the machine under a key with its instance view, as JSON."""
        return self._parts.get("machine", key, expand="instanceView")

    def instance(self, there: Mapping[str, Any]) -> Instance:
        """Return a machine in the contract's form, with its addresses."""
        card, address = (self._parts.get(part, there["name"]) for part in ("nic", "ip"))
        cards, addresses = ({one["id"].lower(): one} if one else {} for one in (card, address))
        return instance(there, view(there), cards, addresses)

    def suiting(self, order: Order) -> tuple[Size, Features | None]:
        """Return the order's size and the features of its image.

        Raises CloudError NOT_OFFERED if they do not match: the size does not boot images of that generation, or has no
        disk controller that the image supports.
        """
        size = self._account.size(order.location, order.type)
        if order.confidential and order.confidential not in size.type.confidential:
            raise CloudError(
                Meaning.NOT_OFFERED,
                f"Instance type {order.type} does not offer {order.confidential} in {order.location}.",
            )
        features = self._account.features(order.location, order.image)
        if features is not None:
            if features.generation and features.generation not in size.generations:
                raise _unsuited(order, f"images of generation {_listed(size.generations)}", features.generation)
            if size.controllers and not size.controllers & features.controllers:
                raise _unsuited(order, f"disks by {_listed(size.controllers)}", _listed(features.controllers))
        return size, features

    def _there(self, order: Order) -> Instance | Underway:
        """Return the machine under the key, once it is provisioned."""
        there = self.machine(order.key)
        if there is None:
            raise CloudError(Meaning.NOT_FOUND, f"The machine {order.key} no longer exists.")
        if not api.has_owner(there, order.tags):
            raise CloudError(
                Meaning.INVALID,
                f"A machine {order.key} already exists, but is not tagged as belonging to this Drydock installation.",
            )
        if not api.bears(there, {api.ATTEMPT: order.token}):
            raise CloudError(Meaning.CONFLICT, f"The machine of an earlier attempt still exists as {order.key}.")
        instance = self.instance(there)
        if instance.state is Lifecycle.FAILED:
            raise refused(failure(view(there)) or {"message": instance.reason}, f"make {order.key}")
        if instance.state is Lifecycle.PENDING:
            return _underway("", TRIED_AGAIN)
        self._tag_disk(order)
        return instance

    def _tag_disk(self, order: Order) -> None:
        try:
            disk = self._parts.get("disk", order.key)
            if disk is not None and not api.bears(disk, order.tags):
                self._parts.merge_tags(disk["id"], api.order_tags(order))
        except CloudError as error:
            # The machine is there and runs; a disk without tags still goes with it and with a sweep.
            if error.meaning in (Meaning.CREDENTIALS, Meaning.INVALID):
                raise


def _unsuited(order: Order, size: str, image: str) -> CloudError:
    text = f"{order.type} supports only {size}, but the image {order.image} requires {image}."
    return CloudError(Meaning.NOT_OFFERED, text, provider_code="ImageDoesNotSuitSize")


def _listed(found: frozenset[str]) -> str:
    return ", ".join(sorted(found))


def view(machine: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the instance view in a machine's JSON, or an empty dict if there is none."""
    return ((machine or {}).get("properties") or {}).get("instanceView") or {}


def _underway(operation: str, after: float, percent: Any = None) -> Underway:
    return Underway(
        handle={"operation": operation},
        after=max(after, 0.05),
        percent=int(percent) if isinstance(percent, int | float) else None,
        sentence="Azure is creating the machine.",
    )


RUN_COMMAND_VERSION = "2024-07-01"
"""Version of the API. Source: REST reference, "Virtual Machines - Run Command"."""
_RUN_COMMAND_SECONDS = 5.0
_SCRIPT = ("cat /etc/ssh/ssh_host_*_key.pub",)


def host_keys(connection: Connection, key: str, command: str) -> Sequence[str] | Underway:
    """Request the host keys, or poll an earlier request (`command`, its URL)."""
    if command:
        answer, headers = connection.ask("GET", command, doing=f"read the answer of {key}")
    else:
        path = (
            f"/subscriptions/{connection.subscription}/resourceGroups/{connection.group}"
            f"/providers/Microsoft.Compute/virtualMachines/{key}/runCommand"
        )
        body = {"commandId": "RunShellScript", "script": list(_SCRIPT)}
        answer, headers = connection.ask(
            "POST", path, version=RUN_COMMAND_VERSION, body=body, doing=f"ask {key} for its host keys"
        )
        command = headers.get("Location", "")
    if answer.get("value") is None and command:
        told = "The guest's host key was requested."
        return Underway(handle={"command": command}, after=seconds(headers, _RUN_COMMAND_SECONDS), sentence=told)
    return _lines(answer)


def _lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines between [stdout] and [stderr] in the message of a run command."""
    said = "\n".join(str(one.get("message") or "") for one in answer.get("value") or ())
    return said.partition("[stdout]")[2].partition("[stderr]")[0].strip().splitlines()


MOST = 65_536
"""Bytes of console output that are read from its end."""


def console_end(url: str, *, deadline: float, ca_bundle: str) -> str:
    """Return the last 64 KiB behind the URL, or an empty string if there is nothing yet.

    The URL is a secret and appears in no message.
    """
    pool = urllib3.PoolManager(ca_certs=ca_bundle or None, retries=False)
    timeout = urllib3.Timeout(connect=min(deadline, 10.0), read=deadline)
    try:
        length = int(_length(pool, url, timeout))
        if not length:
            return ""
        answer = pool.request("GET", url, headers={"Range": f"bytes={max(0, length - MOST)}-"}, timeout=timeout)
        if answer.status >= 400:
            raise _unreadable(f"HTTP {answer.status}")
        return answer.data[-MOST:].decode(errors="replace")
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise _unreadable(type(error).__name__) from None
    finally:
        pool.clear()


def _length(pool: urllib3.PoolManager, url: str, timeout: urllib3.Timeout) -> str:
    answer = pool.request("HEAD", url, timeout=timeout)
    if answer.status == 404:
        return "0"
    if answer.status >= 400:
        raise _unreadable(f"HTTP {answer.status}")
    return answer.headers.get("Content-Length") or "0"


def _unreadable(why: str) -> CloudError:
    return CloudError(Meaning.UNAVAILABLE, f"The console output could not be read: {why}.")
