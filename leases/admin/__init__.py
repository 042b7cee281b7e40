"""The stock admin for every row: to look at what the engine writes, to edit what people decide, and safe actions.

Blueprints' rows are registered here too, because what is done with them goes through `leases.operations`.
"""

from leases.admin import (
    access,
    blueprint,
    catalogue,
    costs,
    credential,
    holdings,
    installation,
    lease,
    outside,
    records,
    remembered,
    resource,
    watches,
)

__all__ = [
    "access",
    "blueprint",
    "catalogue",
    "costs",
    "credential",
    "holdings",
    "installation",
    "lease",
    "outside",
    "records",
    "remembered",
    "resource",
    "watches",
]
