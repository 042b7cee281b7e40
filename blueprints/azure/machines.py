"""Machines in Azure's words: what one is asked for with, and what is read of one."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.azure.names import ATTEMPT, name
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Market, Order

DISK = "StandardSSD_LRS"
"""Where the order names no type: the better ones are not to be had with every size."""
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
    """What a machine's diskControllerType must say: NVMe for a size that has nothing else. Where it has SCSI too, or
    does not tell, Azure's own choice is right (REST reference, StorageProfile)."""
    return "NVMe" if of_size == {"NVMe"} else ""


def body(
    order: Order, nic: str, *, security: Mapping[str, Any] | None, controller: str = ""
) -> dict[str, Any]:  # fmt: skip
    """The PUT of a machine. Disk, network card and address go with it (deleteOption; the default leaves them)."""
    if not order.user or not order.public_key:
        raise CloudError(Meaning.INVALID, "Azure makes no Linux machine without a user and a public key.")
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": order.type},
        "storageProfile": {"imageReference": reference(order.image), "osDisk": _disk(order)},
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
    return {"location": order.location, "tags": tags(order), "properties": properties, **zones}


def tags(order: Order) -> dict[str, str]:
    """The order's, and which attempt it is."""
    return {**order.tags, ATTEMPT: order.token}


def security(order: Order, features: str | None, *, trusted_launch: bool) -> dict[str, Any] | None:
    """The securityProfile. `features`: what the image says of itself (`SecurityType`), None where it says nothing.

    Raises CloudError INVALID for a confidential order with an image that is not made for it.
    """
    said = (features or "").lower()
    if order.confidential:
        if features is not None and "confidential" not in said:
            raise CloudError(
                Meaning.NOT_OFFERED,
                f"The image {order.image} is not made for confidential machines: choose one whose sku is, such as "
                "Canonical:ubuntu-24_04-lts:cvm.",
            )
        return _guarded("ConfidentialVM")
    return _guarded("TrustedLaunch") if trusted_launch and "trustedlaunch" in said else None


def reference(image: str) -> dict[str, str]:
    """An image's id as an imageReference. Raises CloudError INVALID."""
    if image.lower().startswith("/communitygalleries/"):
        return {"communityGalleryImageId": image}
    if image.lower().startswith("/sharedgalleries/"):
        return {"sharedGalleryImageId": image}
    if image.startswith("/"):
        return {"id": image}
    words = image.split(":")
    if len(words) != 4:
        raise CloudError(Meaning.INVALID, f"{image!r} is not an image: PUBLISHER:OFFER:SKU:VERSION, or a resource id.")
    return dict(zip(("publisher", "offer", "sku", "version"), words, strict=True))


def instance(
    machine: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    cards: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, Mapping[str, Any]],
) -> Instance:
    """A machine with its instance view (`status`), and the network cards and addresses there are, by id in small
    letters."""
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
    """A machine whose last operation failed counts by its power, where it has any: it may well run."""
    provisioning, power = provisioning.lower(), power.lower()
    if provisioning == "deleting":
        return Lifecycle.TERMINATING
    if provisioning == "creating":
        return Lifecycle.PENDING
    return _POWER.get(power) or _PROVISIONING.get(provisioning, Lifecycle.PENDING)


def failure(status: Mapping[str, Any]) -> Mapping[str, str] | None:
    """What the instance view tells of a failed operation, as an error body; None where there was none."""
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
        "name": name("disk", order.key),
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


def _guarded(security_type: str) -> dict[str, Any]:
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
    """The private and the public one of the first network card."""
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
    """ARM writes up to seven digits after the second; Python takes six."""
    if not text:
        return None
    head, _, rest = str(text).replace("Z", "+00:00").partition(".")
    digits, plus, zone = rest.partition("+")
    return dt.datetime.fromisoformat(f"{head}.{digits[:6].ljust(6, '0')}{plus}{zone}" if rest else head)
