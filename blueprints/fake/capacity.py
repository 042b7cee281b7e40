"""Capacity in the form used in a blueprint's config."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, NonNegativeInt

from blueprints.amounts import Amounts
from blueprints.contract import Fields


class Capacity(Fields):
    """Total capacity of a resource."""

    slots: NonNegativeInt = 1
    cpu_millicores: NonNegativeInt = 0
    ram_mib: NonNegativeInt = 0
    disk_mib: NonNegativeInt = 0
    extra: Mapping[str, NonNegativeInt] = Field(default={}, description="Additional classes by name.")

    def amounts(self) -> Amounts:
        """Return the capacity in the contract's form."""
        return Amounts(**dict(self))
