"""Bare-metal hosts: racks at a glance, the records of erased disks, and what sensors measured."""

from leases.admin.hosts import erasures, sensors
from leases.admin.hosts.racks import page

__all__ = ["erasures", "page", "sensors"]
