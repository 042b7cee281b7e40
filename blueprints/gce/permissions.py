"""The permissions that the kind needs at Google, and a check of them with Cloud Resource Manager.

The check needs no permission itself. Source: projects.testIamPermissions
(docs.cloud.google.com/resource-manager/reference/rest/v3/projects/testIamPermissions): "a subset of the permissions
that the caller is allowed", at most 100 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.api_core.exceptions import from_http_response
from google.auth.transport.requests import AuthorizedSession

from blueprints.cloud.client import Permission
from blueprints.cloud.faults import CloudError
from blueprints.cloud.values import Order
from blueprints.gce.api import READ_SCOPES, Trusting, token
from blueprints.gce.config import Credential
from blueprints.gce.errors import translated
from blueprints.gce.network import network_link

RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
PERMISSIONS = (
    "compute.acceleratorTypes.list",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.get",
    "compute.disks.list",
    "compute.disks.resize",
    "compute.disks.setLabels",
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.firewalls.update",
    "compute.globalOperations.list",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.list",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.reset",
    "compute.instances.setLabels",
    "compute.instances.setMachineType",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.start",
    "compute.instances.stop",
    "compute.machineTypes.list",
    "compute.networks.list",
    "compute.networks.updatePolicy",
    "compute.networks.use",
    "compute.projects.get",
    "compute.regions.get",
    "compute.regions.list",
    "compute.subnetworks.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
)
"""All permissions of the role in docs/kinds/gce.md; a test keeps both equal."""
WITHOUT = {
    "compute.acceleratorTypes.list": "types with attached GPUs are not offered",
    "compute.disks.resize": "disks cannot be enlarged",
    "compute.globalOperations.list": "a firewall rule that is still being created cannot be deleted reliably",
    "compute.instances.getGuestAttributes": "host keys that guests generate cannot be read",
    "compute.instances.getSerialPortOutput": "the console output cannot be read",
    "compute.instances.reset": "machines cannot be rebooted",
    "compute.instances.setMachineType": "the type of machines cannot be changed",
    "compute.instances.start": "stopped machines cannot be started",
    "compute.instances.stop": "machines cannot be stopped",
    "compute.networks.list": "the network cannot be checked in advance",
    "compute.zoneOperations.list": "the reclaim of a spot machine is not noticed",
}
"""Maps a permission to what fails without it. Without any other permission, the kind does not work."""
_HOST_KEYS = {
    "compute.instances.getGuestAttributes": "guest_attributes",
    "compute.instances.getSerialPortOutput": "console",
}
OF_NETWORK = ("compute.subnetworks.get", "compute.subnetworks.use", "compute.subnetworks.useExternalIp")
"""Permissions that are needed in the project of the subnet, which may differ from the credential's project."""


class Permissions:
    """The permissions of one credential."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self._credential, self._deadline = credential, deadline
        own = credential.endpoint != ""
        self._url = credential.resource_manager or ("" if own else RESOURCE_MANAGER)

    def found(self, order: Order) -> list[Permission]:
        """Return the result for each permission, in the order of `PERMISSIONS`."""
        needed = [name for name in PERMISSIONS if order.public_address or name != OF_NETWORK[-1]]
        host = network_link(order.network, self._credential.project).split("/")[1]
        elsewhere = OF_NETWORK if host != self._credential.project else ()
        here = self._told(self._credential.project, [name for name in needed if name not in elsewhere])
        there = self._told(host, [name for name in needed if name in elsewhere]) if elsewhere else []
        told = {one.name: one for one in (*here, *map(_elsewhere, there))}
        return [told[name] for name in needed]

    def _told(self, project: str, names: Sequence[str]) -> list[Permission]:
        try:
            held = self._held(project, names)
        except CloudError as error:
            why = f"the permissions in {project} could not be read ({error.message})"
            return [_permission(name, None, why) for name in names]
        if held is None:
            why = "the URL of Cloud Resource Manager is not set (resource_manager), and the endpoint is not Google's"
            return [_permission(name, None, why) for name in names]
        return [_permission(name, name in held) for name in names]

    def _held(self, project: str, names: Sequence[str]) -> set[str] | None:
        """Return which permissions the credential has in a project, or None if there is no server to ask.

        Raises CloudError.
        """
        if not self._url:
            return None
        with translated(asked="Cloud Resource Manager"):
            session = AuthorizedSession(token(self._credential, f"{RESOURCE_MANAGER}/", READ_SCOPES))  # type: ignore[no-untyped-call]
            with session:
                if self._credential.ca_bundle:
                    session.mount("https://", Trusting(self._credential.ca_bundle))
                url = f"{self._url}/v3/projects/{project}:testIamPermissions"
                answer = session.post(url, json={"permissions": list(names)}, timeout=self._deadline)
            if answer.status_code >= 400:
                raise from_http_response(answer)  # type: ignore[no-untyped-call]
            return set(answer.json().get("permissions") or ())


def _permission(name: str, held: bool | None, unclear: str = "") -> Permission:
    return Permission(
        name=name, held=held, unclear=unclear, without=WITHOUT.get(name, ""), host_key=_HOST_KEYS.get(name, "")
    )


def _elsewhere(one: Permission) -> Permission:
    """Return a permission in another project, as unclear if that project does not grant it, because its subnet may."""
    if one.held is not False:
        return one
    return _permission(one.name, None, "its project does not grant it, but the subnet may")
