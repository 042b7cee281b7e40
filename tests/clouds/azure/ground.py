"""The double's resource group: what may be made, changed and deleted there, and what comes of it.

Time passes when somebody asks: an operation whose time has come ends before the next call is answered.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime as dt
import time
import uuid
from collections.abc import Callable, Sequence
from threading import RLock

from azure.mgmt.compute import types as compute
from azure.mgmt.network import types as network

from tests.clouds.azure import catalogue
from tests.clouds.azure.faults import Refusal, Want
from tests.clouds.azure.shapes import problems
from tests.clouds.azure.things import (
    DISK,
    IN_USE,
    IP,
    MACHINE,
    NETWORK,
    NIC,
    NSG,
    Json,
    Machine,
    Operation,
    Thing,
    Things,
    addresses,
)

SHAPES = {
    MACHINE: compute.VirtualMachine,
    NSG: network.NetworkSecurityGroup,
    IP: network.PublicIPAddress,
    NIC: network.NetworkInterface,
    NETWORK: network.VirtualNetwork,
}
QUOTA = (
    "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - "
    "Location: {location}, Current Limit: {limit}, Current Usage: {used}, Additional Required: {more}."
)


@dataclasses.dataclass(frozen=True)
class Grant:
    """A role that is assigned to the caller at a scope, and holds in all scopes below it."""

    scope: str
    actions: Sequence[str]
    but: Sequence[str] = ()

    def json(self) -> Json:
        """As Permissions - List has it."""
        return {"actions": [*self.actions], "notActions": [*self.but], "dataActions": [], "notDataActions": []}


class Ground:
    """One subscription with one resource group."""

    def __init__(self, subscription: str, group: str, duration: float) -> None:
        self.subscription, self.group, self.duration = subscription, group, duration
        self.lock = RLock()
        self.things = Things()
        self.operations: dict[str, Operation] = {}
        self.wants: list[Want] = []
        self.grants: list[Grant] = [Grant(f"/subscriptions/{subscription}", ("*",))]
        self.limits: dict[tuple[str, str], int] = {}
        self.consoles: dict[str, str] = {}
        self.host_key: Callable[[str], str] = lambda key: ""
        """The host key that the machine of a name prints when it is asked by Run Command."""
        self.online_growth = True
        self.on_start: Callable[[Machine], str] | None = None
        self.on_end: Callable[[Machine], None] | None = None
        self._address = addresses()

    def settle(self) -> None:
        """End the operations whose time has come."""
        for operation in list(self.operations.values()):
            if not operation.done and operation.ends <= time.monotonic():
                operation.done = True
                operation.error = operation.finish()

    def put(self, id: str, type: str, body: Json, *, only_new: bool) -> tuple[Thing, Operation | None, bool]:
        """Make or change an object: it, its operation, and whether it is new."""
        wrong = problems(body, SHAPES[type], type.rsplit("/", 1)[-1])
        if wrong:
            raise Refusal(400, "InvalidRequestContent", f"The request content was invalid: {'; '.join(wrong)[:900]}")
        self._check_place(body)
        there = self.things.find(id)
        if there is not None and only_new:
            raise Refusal(412, "PreconditionFailed", f"The precondition given does not hold for {there.name}.")
        if there is not None:
            return there, self._change(there, body), False
        thing = Thing(id=id, type=type, name=id.rsplit("/", 1)[-1], body=body)
        operation = self._make_machine(thing) if type == MACHINE else self._make_network(thing)
        self.things.add(thing)
        return thing, operation, True

    def delete(self, thing: Thing) -> Operation:
        """Begin the end of an object."""
        user = self.things.user_of(thing) if thing.type != MACHINE else None
        if user is not None:
            status, code = IN_USE[thing.type]
            raise Refusal(status, code, f"{thing.name} is in use by {user.id}.")
        if thing.state == "Deleting":
            return self.operation(lambda: None)
        thing.state, thing.busy = "Deleting", True
        if thing.type == MACHINE:
            self._end(thing)
        return self.operation(lambda: self._gone(thing))

    def act(self, thing: Thing, verb: str) -> Operation:
        """deallocate, powerOff, start, restart."""
        if thing.busy:
            raise Refusal(409, "AnotherOperationInProgress", f"Another operation on {thing.name} is in progress.")
        before, after = {
            "deallocate": ("deallocating", "deallocated"),
            "poweroff": ("stopping", "stopped"),
            "start": ("starting", "running"),
            "restart": ("running", "running"),
        }[verb]
        already = thing.power == after and verb != "restart"
        if not already:
            thing.power, thing.busy = before, True
            if verb != "start":
                self._end(thing)
        return self.operation(lambda: None if already else self._powered(thing, after))

    def evict(self, name: str) -> None:
        """Azure takes a spot machine back."""
        thing = next(one for one in self.things.of(MACHINE) if one.name == name)
        assert thing.properties.get("priority") == "Spot", f"{name} is no spot machine"
        if thing.properties["evictionPolicy"] == "Delete":
            self.delete(thing)
        else:
            self.act(thing, "deallocate")
            thing.failure = ("Evicted", "The machine was evicted.")

    def patch(self, thing: Thing, body: Json) -> Operation:
        """Change a machine or a disk."""
        shape = compute.VirtualMachineUpdate if thing.type == MACHINE else compute.DiskUpdate
        wrong = problems(body, shape, "patch")
        if wrong:
            raise Refusal(400, "InvalidRequestContent", f"The request content was invalid: {'; '.join(wrong)[:900]}")
        if "tags" in body:
            thing.body["tags"] = check_tags(body["tags"])
        if thing.type == DISK:
            self._grow(thing, body.get("properties") or {})
        elif size := ((body.get("properties") or {}).get("hardwareProfile") or {}).get("vmSize"):
            self._check_size(size, thing.location, thing.body.get("zones") or [])
            thing.properties["hardwareProfile"]["vmSize"] = size
        return self.operation(lambda: None)

    def operation(self, finish: Callable[[], tuple[str, str] | None]) -> Operation:
        """A new one of the usual length."""
        now = time.monotonic()
        made = Operation(id=str(uuid.uuid4()), started=now, ends=now + self.duration, finish=finish)
        self.operations[made.id] = made
        return made

    def used(self, location: str) -> dict[str, int]:
        """What counts for the limits there."""
        used = {"virtualMachines": 0, "cores": 0, "lowPriorityCores": 0}
        for thing in self.things.of(MACHINE):
            if thing.location != location:
                continue
            size = thing.properties["hardwareProfile"]["vmSize"]
            used["virtualMachines"] += 1
            for name in _counts(size, thing.properties.get("priority") == "Spot"):
                used[name] = used.get(name, 0) + _cores(size)
        return used

    def addresses(self, location: str) -> int:
        """The public ones there."""
        return len([one for one in self.things.of(IP) if one.location == location])

    def limit(self, location: str, name: str) -> int:
        """The usual one is 100 vCPUs, and 25000 machines."""
        return self.limits.get((location, name), 25_000 if name == "virtualMachines" else 100)

    def granted(self, scope: str) -> list[Grant]:
        """What holds at a scope, from above too."""
        return [one for one in self.grants if f"{scope}/".lower().startswith(f"{one.scope}/".lower())]

    def put_network(self, name: str, location: str, *subnets: str) -> str:
        """A virtual network of the operator's own; its resource id."""
        id = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/{NETWORK}/{name}"
        made = [{"id": f"{id}/subnets/{one}", "name": one, "properties": {}} for one in subnets]
        body = {"location": location, "properties": {"subnets": made}}
        self.things.add(Thing(id=id, type=NETWORK, name=name, body=body, state="Succeeded"))
        return id

    def end_all(self) -> None:
        """Everything that was started for machines."""
        for thing in self.things.of(MACHINE):
            self._end(thing)

    def _check_place(self, body: Json) -> None:
        if str(body["location"]).lower() not in catalogue.LOCATIONS:
            raise Refusal(400, "LocationNotAvailableForResourceType", f"There is no location {body['location']}.")
        check_tags(body.get("tags") or {})

    def _change(self, there: Thing, body: Json) -> Operation:
        if there.location != body["location"].lower():
            raise Refusal(409, "InvalidResourceLocation", f"{there.name} already exists in {there.location}.")
        if there.type == MACHINE:
            raise Refusal(409, "PropertyChangeNotAllowed", "Changing property 'customData' is not allowed.")
        if there.busy:
            raise Refusal(429, "RetryableError", f"{there.name} is being worked on.")
        self._check_references(there, body)
        kept = {name: there.properties[name] for name in ("ipAddress", "virtualMachine") if name in there.properties}
        there.body = body
        there.properties.update(kept)
        return self._ready(there)

    def _make_network(self, thing: Thing) -> Operation:
        self._check_references(thing, thing.body)
        thing.state = "Updating"
        if thing.type == IP:
            if thing.body.get("sku", {}).get("name") != "Standard":
                raise Refusal(400, "BasicSkuPublicIpNotSupported", "Basic addresses have been retired.")
            thing.properties["ipAddress"] = self._address()
        return self._ready(thing)

    def _ready(self, thing: Thing) -> Operation:
        thing.busy = True
        if thing.type == NETWORK:
            for one in thing.properties.get("subnets") or []:
                one["id"] = f"{thing.id}/subnets/{one['name']}"
                one["properties"]["provisioningState"] = "Succeeded"
        if thing.type == NIC:
            for one in thing.properties["ipConfigurations"]:
                one["properties"].setdefault("privateIPAddress", self._address())

        def finish() -> None:
            thing.state, thing.busy = "Succeeded", False

        return self.operation(finish)

    def _check_references(self, thing: Thing, body: Json) -> None:
        if thing.type != NIC:
            return
        about = body["properties"]
        for one in about["ipConfigurations"]:
            subnet = one["properties"]["subnet"]["id"]
            self._refer(subnet.rsplit("/subnets/", 1)[0], thing)
            if address := one["properties"].get("publicIPAddress"):
                user = self.things.user_of(self._refer(address["id"], thing))
                if user is not None and user.id.lower() != thing.id.lower():
                    raise Refusal(400, "PublicIPAddressInUse", f"{address['id']} is used by {user.id}.")
        if about.get("networkSecurityGroup"):
            self._refer(about["networkSecurityGroup"]["id"], thing)

    def _refer(self, id: str, thing: Thing) -> Thing:
        there = self.things.find(id)
        if there is None or there.location != str(thing.body["location"]).lower():
            raise Refusal(400, "InvalidResourceReference", f"Resource {id} referenced by {thing.id} was not found.")
        if there.state != "Succeeded":
            raise Refusal(409, "ReferencedResourceNotProvisioned", f"{id} is in {there.state} state.")
        return there

    def _make_machine(self, thing: Thing) -> Operation:
        thing.body["properties"] = about = thing.properties
        size, zones = about["hardwareProfile"]["vmSize"], thing.body.get("zones") or []
        self._check_size(size, thing.location, zones)
        self._check_image(about["storageProfile"]["imageReference"])
        self._check_security(about, size)
        self._check_disk(about["storageProfile"], size)
        system = self._check_system(about.get("osProfile") or {})
        spot = about.get("priority") == "Spot"
        if not spot and (about.get("evictionPolicy") or about.get("billingProfile")):
            raise Refusal(400, "InvalidParameter", "evictionPolicy and billingProfile are for Spot.")
        failure = self._wanting(size, thing.location, next(iter(zones), ""))
        self._check_limits(size, thing.location, spot)
        card = self._card(thing)
        self._disk(thing)
        about["vmId"] = str(uuid.uuid4())
        about["timeCreated"] = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0+00:00")
        card.properties["virtualMachine"] = {"id": thing.id}
        thing.machine = Machine(id=about["vmId"], key=thing.name, **system)
        thing.busy = True
        return self.operation(lambda: self._made(thing, failure))

    def _check_size(self, size: str, location: str, zones: list[str]) -> None:
        if catalogue.capabilities(size) is None:
            raise Refusal(400, "InvalidParameter", f"The value {size} provided for the VM size is not valid.")
        refused, without = catalogue.refusals(size, location)
        there = set(catalogue.LOCATIONS[location][2])
        if refused or set(zones) & set(without):
            raise Refusal(409, "SkuNotAvailable", f"The requested VM size {size} is currently not available in "
                          f"location '{location}' zones '{','.join(zones)}' for the subscription.")  # fmt: skip
        if not set(zones) <= there:
            raise Refusal(400, "AvailabilityZoneNotSupported", f"The zone(s) {zones} are not supported in {location}.")

    def _check_image(self, found: Json) -> None:
        if "id" in found:
            return
        words = (found.get("publisher"), found.get("offer"), found.get("sku"))
        if words not in catalogue.IMAGES or found.get("version") not in ("latest", *catalogue.VERSIONS):
            raise Refusal(404, "PlatformImageNotFound", f"The platform image {found} is not available.")

    def _check_security(self, about: Json, size: str) -> None:
        can = catalogue.capabilities(size) or {}
        profile = about.get("securityProfile") or {}
        sort = profile.get("securityType", "")
        image = about["storageProfile"]["imageReference"]
        feature = catalogue.IMAGES.get((image.get("publisher"), image.get("offer"), image.get("sku")), "Confidential")
        disk = about["storageProfile"]["osDisk"]["managedDisk"].get("securityProfile")
        fits = {
            "": not can.get("ConfidentialComputingType") and not disk,
            "TrustedLaunch": can.get("TrustedLaunchDisabled") != "True" and "TrustedLaunch" in feature and not disk,
            "ConfidentialVM": bool(can.get("ConfidentialComputingType")) and "Confidential" in feature and bool(disk),
        }
        if not fits.get(sort) or (sort and not (profile.get("uefiSettings") or {}).get("vTpmEnabled")):
            raise Refusal(400, "BadRequest", f"The VM size {size} with this image does not do security type '{sort}'.")

    def _check_disk(self, storage: Json, size: str) -> None:
        can, image = catalogue.capabilities(size) or {}, storage["imageReference"]
        old = (image.get("publisher"), image.get("offer"), image.get("sku")) in catalogue.OLD_IMAGES
        generation = "V1" if old else "V2"
        if generation not in can["HyperVGenerations"].split(","):
            raise Refusal(400, "BadRequest", f"The selected VM size '{size}' cannot boot Hypervisor Generation "
                          f"'{generation[1]}'.")  # fmt: skip
        of_size = can.get("DiskControllerTypes", "SCSI").split(",")
        wanted = storage.get("diskControllerType", "SCSI")
        if wanted not in of_size or (wanted == "NVMe" and old):
            raise Refusal(400, "InvalidParameter", f"The VM size '{size}' cannot have disks by {wanted}.")

    def _check_system(self, system: Json) -> dict[str, str]:
        linux = system.get("linuxConfiguration") or {}
        keys = (linux.get("ssh") or {}).get("publicKeys") or []
        if not system.get("adminUsername") or not keys or not linux.get("disablePasswordAuthentication"):
            raise Refusal(
                400, "InvalidParameter", "Required parameter 'osProfile' is missing or has no SSH key (null)."
            )
        if len(system.get("computerName", "")) > 64:
            raise Refusal(400, "InvalidParameter", "computerName has more than 64 characters.")
        try:
            user_data = base64.b64decode(system.get("customData", ""), validate=True).decode()
        except (binascii.Error, ValueError):
            raise Refusal(400, "InvalidParameter", "Custom data in OSProfile must be in Base64 encoding.") from None
        return {"user_data": user_data, "user": system["adminUsername"], "public_key": keys[0]["keyData"]}

    def _wanting(self, size: str, location: str, zone: str) -> tuple[str, str] | None:
        for want in self.wants:
            if want.strikes(size, location, zone):
                message = want.message or f"There is not enough of {size} in {location}."
                if not want.later:
                    raise Refusal(want.status, want.code, message)
                return want.code, message
        return None

    def _check_limits(self, size: str, location: str, spot: bool) -> None:
        used = self.used(location)
        for name in _counts(size, spot):
            limit = self.limit(location, name)
            if used.get(name, 0) + _cores(size) > limit:
                said = QUOTA.format(
                    name=name, location=location, limit=limit, used=used.get(name, 0), more=_cores(size)
                )
                raise Refusal(409, "OperationNotAllowed", said)

    def _card(self, thing: Thing) -> Thing:
        card = self._refer(thing.properties["networkProfile"]["networkInterfaces"][0]["id"], thing)
        user = self.things.user_of(card)
        if user is not None:
            raise Refusal(400, "NicInUse", f"Network Interface {card.id} is used by existing resource {user.id}.")
        return card

    def _disk(self, thing: Thing) -> None:
        """Azure makes it itself, without tags."""
        wanted = thing.properties["storageProfile"]["osDisk"]
        id = f"{thing.id.rsplit('/providers/', 1)[0]}/providers/{DISK}/{wanted['name']}"
        if self.things.find(id):
            raise Refusal(409, "ConflictingUserInput", f"Disk {wanted['name']} already exists.")
        body = {"location": thing.location, "properties": {"diskSizeGB": wanted.setdefault("diskSizeGB", 30)}}
        disk = Thing(id=id, type=DISK, name=wanted["name"], body=body, state="Succeeded")
        self.things.add(disk)
        wanted["managedDisk"]["id"] = id

    def _grow(self, disk: Thing, wanted: Json) -> None:
        size, now = wanted.get("diskSizeGB", 0), disk.properties["diskSizeGB"]
        user = self.things.user_of(disk)
        if size and size < now:
            raise Refusal(400, "BadRequest", "A disk cannot shrink.")
        if size > now and not self.online_growth and user is not None and user.power != "deallocated":
            raise Refusal(409, "OperationNotAllowed", "Cannot resize disk while it is attached to a running VM.")
        disk.properties["diskSizeGB"] = max(size, now)

    def _made(self, thing: Thing, failure: tuple[str, str] | None) -> tuple[str, str] | None:
        if thing.state == "Deleting":
            return None
        thing.busy = False
        if failure:
            thing.state, thing.failure = "Failed", failure
            return failure
        thing.state = "Succeeded"
        return self._powered(thing, "running")

    def _powered(self, thing: Thing, power: str) -> None:
        if thing.state == "Deleting":
            return
        thing.power, thing.busy = power, False
        if power == "running" and self.on_start and thing.machine:
            thing.started = True
            self._placed(thing, self.on_start(thing.machine))

    def _placed(self, thing: Thing, address: str) -> None:
        """Its private and its public address are what on_start has said."""
        card = self.things.get(thing.properties["networkProfile"]["networkInterfaces"][0]["id"])
        for one in card.properties["ipConfigurations"]:
            one["properties"]["privateIPAddress"] = address
            if public := one["properties"].get("publicIPAddress"):
                self.things.get(public["id"]).properties["ipAddress"] = address

    def _end(self, thing: Thing) -> None:
        if self.on_end and thing.machine and thing.started:
            thing.started = False
            self.on_end(thing.machine)

    def _gone(self, thing: Thing) -> None:
        self.things.drop(thing.id)
        if thing.type == MACHINE:
            self._after_machine(thing)

    def _after_machine(self, thing: Thing) -> None:
        """What goes with it goes; what does not is free again."""
        disk = thing.properties["storageProfile"]["osDisk"]
        if disk.get("deleteOption") == "Delete":
            self.things.drop(disk["managedDisk"]["id"])
        for reference in thing.properties["networkProfile"]["networkInterfaces"]:
            card = self.things.get(reference["id"])
            card.properties.pop("virtualMachine", None)
            if (reference.get("properties") or {}).get("deleteOption") != "Delete":
                continue
            self.things.drop(card.id)
            for one in card.properties["ipConfigurations"]:
                public = one["properties"].get("publicIPAddress") or {}
                if (public.get("properties") or {}).get("deleteOption") == "Delete":
                    self.things.drop(public["id"])


def check_tags(tags: Json) -> Json:
    """Raises Refusal for too many, or too long ones."""
    if len(tags) > 50 or any(len(name) > 512 or len(value) > 256 for name, value in tags.items()):
        raise Refusal(400, "InvalidTagNameOrValue", "At most 50 tags, names of 512 and values of 256 characters.")
    return tags


def _cores(size: str) -> int:
    return int((catalogue.capabilities(size) or {})["vCPUs"])


def _counts(size: str, spot: bool) -> list[str]:
    return ["lowPriorityCores"] if spot else ["cores", catalogue.family(size)]
