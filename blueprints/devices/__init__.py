"""Isolation of the devices of a host: an account gets the devices of its leases, and no others.

Everything runs as root through the host's control account, and nothing through an account that a lease has used. The
kinds decide which devices a lease gets, and what to do with a device that cannot be cleaned.
"""

from blueprints.devices.cdi import publish, qualified_name, specification, withdraw
from blueprints.devices.environment import environment
from blueprints.devices.grants import (
    close,
    end_users,
    grant,
    hand_back,
    hand_back_all,
    has_devices,
    remaining,
    revoke,
    revoke_account,
    users,
)
from blueprints.devices.network import (
    LINK_IN_USE,
    Link,
    attach,
    attached,
    detach,
    detach_account,
    has_network,
    namespace_of,
)
from blueprints.devices.values import Account, Device, DeviceRefused, Granted, Holder, Node

__all__ = [
    "LINK_IN_USE", "Account", "Device", "DeviceRefused", "Granted", "Holder", "Link", "Node", "attach", "attached",
    "close", "detach", "detach_account", "end_users", "environment", "grant", "hand_back", "hand_back_all",
    "has_devices", "has_network", "namespace_of", "publish", "qualified_name", "remaining", "revoke", "revoke_account",
    "specification", "users", "withdraw",
]  # fmt: skip
