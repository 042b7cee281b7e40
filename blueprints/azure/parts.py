"""The objects that stand under one key: read, put and deleted in one way, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.core import MatchConditions

from blueprints.azure.calls import found, guarded
from blueprints.azure.connection import Connection
from blueprints.azure.names import SUFFIXES, bears, name
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Remnant

_STILL_THERE = (Meaning.CONFLICT, Meaning.AMBIGUOUS, Meaning.UNAVAILABLE)
_IN_USE = ("InUse", "CannotBeDeleted", "Attached", "Reserved")
TAGS_VERSION = "2021-04-01"


class Parts:
    """Machine, network card, address, firewall and disk of a key, as JSON in Azure's words."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        compute, network = connection.compute, connection.network
        self._operations: dict[str, Any] = {
            "machine": compute.virtual_machines,
            "nic": network.network_interfaces,
            "ip": network.public_ip_addresses,
            "nsg": network.network_security_groups,
            "disk": compute.disks,
        }

    def get(self, part: str, key: str, **expand: str) -> Mapping[str, Any] | None:
        """One of them; None where there is none."""
        named = name(part, key)
        answer = found(
            f"read {named}", lambda: self._operations[part].get(self._connection.group, named, **expand).as_dict()
        )
        return answer if isinstance(answer, dict) else None

    def put(
        self, part: str, key: str, body: Mapping[str, Any], *, only_new: bool = False
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Make or change one: what the answer says of it, and the answer's headers. `only_new`: raises CloudError
        CONFLICT (PreconditionFailed) where there is one."""
        named = name(part, key)
        condition = {"match_condition": MatchConditions.IfMissing} if only_new else {}
        with guarded(f"make {named}", write=True):
            poller = self._operations[part].begin_create_or_update(
                self._connection.group, named, body, polling=False, cls=_whole, **condition
            )
            return poller.result()  # type: ignore[no-any-return]

    def patch(self, part: str, key: str, body: Mapping[str, Any], doing: str) -> None:
        """Ask for a change of a machine or disk."""
        with guarded(doing, write=True):
            self._operations[part].begin_update(
                self._connection.group, name(part, key), body, polling=False, cls=_whole
            ).result()

    def delete(self, part: str, key: str) -> None:
        """Ask for the end of one; success where there is none."""
        named = name(part, key)
        try:
            with guarded(f"delete {named}", write=True):
                self._operations[part].begin_delete(self._connection.group, named, polling=False, cls=_whole).result()
        except CloudError as error:
            if error.meaning is not Meaning.NOT_FOUND:
                raise

    def sweep(self, key: str, bears: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Delete these parts (as they were read), the machine first; the names of those still there afterwards. What
        another part still uses is tried again by the next sweep."""
        for part in SUFFIXES:
            if part in bears and not _going(bears[part]):
                self._try(part, key)
        return [name(part, key) for part in SUFFIXES if part in bears and self.get(part, key) is not None]

    def remains(self, tags: Mapping[str, str]) -> list[Remnant]:
        """Everything but machines in the resource group that bears these tags."""
        found = []
        for part, suffix in SUFFIXES.items():
            if part != "machine":
                with guarded(f"list what ends in {suffix}"):
                    pages = self._operations[part]
                    named = getattr(pages, "list_by_resource_group", None) or pages.list
                    listed = [one.as_dict() for one in named(self._connection.group)]
                found += [_remnant(part, one) for one in listed if bears(one, tags)]
        return found

    def merge_tags(self, resource_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to any object; others stay, and nobody's change in between is undone."""
        self._connection.ask(
            "PATCH",
            f"{resource_id}/providers/Microsoft.Resources/tags/default",
            version=TAGS_VERSION,
            body={"operation": "Merge", "properties": {"tags": dict(tags)}},
            doing=f"tag {resource_id.rsplit('/', 1)[-1]}",
        )

    def _try(self, part: str, key: str) -> None:
        try:
            self.delete(part, key)
        except CloudError as error:
            used = any(word in error.provider_code for word in _IN_USE)
            if error.meaning not in _STILL_THERE and not used:
                raise


def _whole(response: Any, model: Any, headers: Any) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """What a first answer says, before anything has been waited for."""
    answer = response.http_response
    return (answer.json() if answer.content else {}), answer.headers


def _going(found: Mapping[str, Any]) -> bool:
    return str((found.get("properties") or {}).get("provisioningState")).lower() == "deleting"


_WORDS = {"nic": "network card", "ip": "address", "nsg": "firewall", "disk": "volume"}


def _remnant(part: str, found: Mapping[str, Any]) -> Remnant:
    """Its name is its key with the part's ending; one that ends otherwise was not made by us under that name."""
    named = str(found["name"])
    suffix = SUFFIXES[part]
    return Remnant(
        what=_WORDS[part],
        id=named,
        key=named.removesuffix(suffix) if named.endswith(suffix) else "",
        location=str(found.get("location") or "").lower(),
        zone=next(iter(found.get("zones") or ()), ""),
        tags={str(tag): str(value) for tag, value in (found.get("tags") or {}).items()},
    )
