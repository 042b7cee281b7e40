"""The console: Django's admin for all models, with actions that call `leases.operations`.

Importing this package registers all admins, including those of blueprints. `leases.admin.toolkit` contains the parts
that pages share.
"""

from leases.admin import (
    agents,
    blueprints,
    costs,
    credentials,
    fleet,
    hardware,
    hosts,
    installation,
    jobs,
    leases,
    offers,
    permissions,
    records,
    resources,
)

__all__ = [
    "agents",
    "blueprints",
    "costs",
    "credentials",
    "fleet",
    "hardware",
    "hosts",
    "installation",
    "jobs",
    "leases",
    "offers",
    "permissions",
    "records",
    "resources",
]
