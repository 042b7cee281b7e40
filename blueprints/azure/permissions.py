"""The permissions that the kind needs at Azure, and a check of them by the roles assigned at a scope.

Source: "Permissions - List For Resource Group" and "... For Resource" of the REST reference of Microsoft.Authorization:
one entry for each role, which grants its `actions` except its `notActions`; * matches any text. The answer omits deny
assignments and conditions of assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from blueprints.azure.api import Connection
from blueprints.cloud.client import Permission
from blueprints.cloud.faults import CloudError
from blueprints.cloud.values import Order
from drydock.core.wildcards import matches

VERSION = "2022-04-01"
IN_GROUP = (
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/restart/action",
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
    "Microsoft.Compute/virtualMachines/runCommand/action",
    "Microsoft.Compute/virtualMachines/start/action",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/delete",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/securityRules/delete",
    "Microsoft.Network/networkSecurityGroups/securityRules/write",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Resources/tags/write",
)
"""All permissions of the role for the resource group in docs/kinds/azure.md; a test keeps both equal."""
IN_SUBSCRIPTION = (
    "Microsoft.Authorization/permissions/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/read",
    "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Network/locations/usages/read",
    "Microsoft.Resources/subscriptions/locations/read",
)
"""All permissions of the role for the subscription on the same page."""
_NO_QUOTA = "quotas are noticed only when a create is refused"
WITHOUT = {
    "Microsoft.Authorization/permissions/read": "other missing permissions cannot be found in advance",
    "Microsoft.Compute/images/read": "the resource group's images cannot be listed",
    "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/read": "the marketplace cannot be searched",
    "Microsoft.Compute/locations/usages/read": _NO_QUOTA,
    "Microsoft.Compute/virtualMachines/deallocate/action": "machines cannot be stopped",
    "Microsoft.Compute/virtualMachines/restart/action": "machines cannot be rebooted",
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action": "the console output cannot be read",
    "Microsoft.Compute/virtualMachines/runCommand/action": "host keys that guests generate cannot be read",
    "Microsoft.Compute/virtualMachines/start/action": "stopped machines cannot be started",
    "Microsoft.Network/locations/usages/read": _NO_QUOTA,
}
"""Maps a permission to what fails without it. Without any other permission, the kind does not work."""
_HOST_KEYS = {
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action": "console",
    "Microsoft.Compute/virtualMachines/runCommand/action": "run_command",
}
JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action"
_OF_OURS = frozenset({"Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/write"})
"""Permissions that are needed only if Drydock creates the network."""
_OF_ADDRESSES = frozenset(f"Microsoft.Network/publicIPAddresses/{act}" for act in ("delete", "join/action", "write"))


def permissions(connection: Connection, order: Order) -> list[Permission]:
    """Return the status of every required permission: for the group, the subscription, and a named subnet."""
    subscription = f"/subscriptions/{connection.subscription}"
    spared = (_OF_OURS | {JOIN} if order.network else frozenset()) | (
        frozenset() if order.public_address else _OF_ADDRESSES
    )
    wanted = [
        ("", f"{subscription}/resourcegroups/{connection.group}", [one for one in IN_GROUP if one not in spared]),
        (" (in the whole subscription)", subscription, list(IN_SUBSCRIPTION)),
    ]
    if order.network:
        wanted.append((" (of the subnet)", order.network, [JOIN]))
    return [one for where, scope, names in wanted for one in _at(connection, scope, names, where)]


def _at(connection: Connection, scope: str, names: Sequence[str], where: str) -> Iterator[Permission]:
    """Yield the status of permissions at a scope.

    `where` is appended to the names if the scope is not the resource group.
    """
    held, unclear = None, ""
    try:
        held = _granted(connection, scope)
    except CloudError as error:
        unclear = f"the permissions at {scope} could not be read ({error.message})"
    for name in names:
        yield Permission(
            name=name + where, held=held(name) if held else None, unclear=unclear, without=WITHOUT.get(name, ""),
            host_key=_HOST_KEYS.get(name, ""),
        )  # fmt: skip


def _granted(connection: Connection, scope: str) -> Callable[[str], bool]:
    """Return a function that tells whether our roles at a scope, or at scopes above it, grant a permission."""
    path = f"{scope}/providers/Microsoft.Authorization/permissions"
    version, entries = VERSION, list[Mapping[str, Any]]()
    while path:
        answer, _ = connection.ask("GET", path, version=version, doing="read its permissions")
        entries += answer.get("value") or ()
        path, version = str(answer.get("nextLink") or ""), ""
    return lambda name: any(_allows(one, name) for one in entries)


def _allows(entry: Mapping[str, Any], name: str) -> bool:
    allowed, but = (entry.get(field) or () for field in ("actions", "notActions"))
    return _fits(name, allowed) and not _fits(name, but)


def _fits(name: str, actions: Iterable[str]) -> bool:
    return any(matches(action.lower(), name.lower()) for action in actions)
