"""One attempt to make a machine: asked for once, and looked at until it stands or has failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.azure import machines, names
from blueprints.azure.calls import seconds
from blueprints.azure.connection import Connection
from blueprints.azure.errors import told
from blueprints.azure.inventory import Features, Inventory
from blueprints.azure.parts import Parts
from blueprints.azure.sizes import Size
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Order, Underway

TRIED_AGAIN = 3.0
"""Seconds until an operation is looked at again where Azure does not say."""


class Attempts:
    """What the orders of a client come to."""

    def __init__(self, connection: Connection, parts: Parts, inventory: Inventory) -> None:
        self._connection, self._parts, self._inventory = connection, parts, inventory

    def create(self, order: Order, nic: str) -> Instance | Underway:
        """PUT the machine unless there is one."""
        names.check(order)
        size, features = self.suiting(order)
        said = None if features is None else features.security
        security = machines.security(order, said, trusted_launch=size.trusted_launch)
        body = machines.body(order, nic, security=security, controller=machines.controller(size.controllers))
        try:
            _, headers = self._parts.put("machine", order.key, body, only_new=True)
        except CloudError as error:
            if error.meaning is not Meaning.CONFLICT or self.machine(order.key) is None:
                raise
            return self._there(order)
        return _underway(headers.get("Azure-AsyncOperation", ""), seconds(headers, TRIED_AGAIN))

    def created(self, order: Order, operation: str) -> Instance | Underway:
        """What has become of it; without an operation the machine itself tells."""
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
            raise told(answer.get("error") or {}, f"make {order.key}")
        if answer.get("status") != "Succeeded":
            return _underway(operation, seconds(headers, TRIED_AGAIN), answer.get("percentComplete"))
        return self._there(order)

    def machine(self, key: str) -> Mapping[str, Any] | None:
        """The machine under a key with its instance view, as JSON."""
        return self._parts.get("machine", key, expand="instanceView")

    def instance(self, there: Mapping[str, Any]) -> Instance:
        """The same as a value, with its addresses."""
        card, address = (self._parts.get(part, there["name"]) for part in ("nic", "ip"))
        cards, addresses = ({one["id"].lower(): one} if one else {} for one in (card, address))
        return machines.instance(there, view(there), cards, addresses)

    def suiting(self, order: Order) -> tuple[Size, Features | None]:
        """The order's size, and what its image says of itself. Raises CloudError NOT_OFFERED where the two do not go
        together: the size boots no image of that generation, or has no disk by a controller that the image knows."""
        size = self._inventory.size(order.location, order.type)
        if order.confidential and order.confidential not in size.type.confidential:
            raise CloudError(Meaning.NOT_OFFERED, f"{order.type} has no {order.confidential} in {order.location}.")
        features = self._inventory.features(order.location, order.image)
        if features is not None:
            if features.generation and features.generation not in size.generations:
                raise _unsuited(order, f"images of generation {_listed(size.generations)}", features.generation)
            if size.controllers and not size.controllers & features.controllers:
                raise _unsuited(order, f"disks by {_listed(size.controllers)}", _listed(features.controllers))
        return size, features

    def _there(self, order: Order) -> Instance | Underway:
        """The machine under the key, once it is provisioned."""
        there = self.machine(order.key)
        if there is None:
            raise CloudError(Meaning.NOT_FOUND, f"The machine {order.key} is gone again.")
        if not names.of_owner(there, order.tags):
            raise CloudError(Meaning.INVALID, f"There is a machine {order.key} already: its tags are not ours.")
        if not names.bears(there, {names.ATTEMPT: order.token}):
            raise CloudError(Meaning.CONFLICT, f"The machine of an earlier attempt still stands as {order.key}.")
        instance = self.instance(there)
        if instance.state is Lifecycle.FAILED:
            raise told(machines.failure(view(there)) or {"message": instance.reason}, f"make {order.key}")
        if instance.state is Lifecycle.PENDING:
            return _underway("", TRIED_AGAIN)
        self._tag_disk(order)
        return instance

    def _tag_disk(self, order: Order) -> None:
        try:
            disk = self._parts.get("disk", order.key)
            if disk is not None and not names.bears(disk, order.tags):
                self._parts.merge_tags(disk["id"], machines.tags(order))
        except CloudError as error:
            # The machine is there and runs; a disk without tags still goes with it and with a sweep.
            if error.meaning in (Meaning.CREDENTIALS, Meaning.INVALID):
                raise


def _unsuited(order: Order, size: str, image: str) -> CloudError:
    text = f"{order.type} takes only {size}, and the image {order.image} is made for {image}."
    return CloudError(Meaning.NOT_OFFERED, text, provider_code="ImageDoesNotSuitSize")


def _listed(found: frozenset[str]) -> str:
    return ", ".join(sorted(found))


def view(machine: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The instance view in a machine's JSON; empty where there is none."""
    return ((machine or {}).get("properties") or {}).get("instanceView") or {}


def _underway(operation: str, after: float, percent: Any = None) -> Underway:
    return Underway(
        handle={"operation": operation},
        after=max(after, 0.05),
        percent=int(percent) if isinstance(percent, int | float) else None,
        sentence="Azure makes the machine.",
    )
