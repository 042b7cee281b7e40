"""The volumes of storage that the config of a blueprint lets owners have on their DPU."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from blueprints.contract import Fields
from interfaces.dpu_services import VolumeLimits

ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""Name of an object of the operator."""


class VolumeConfig(Fields):
    """Volumes that owners may create and attach to the host of their DPU."""

    policies: tuple[ObjectName, ...] = Field(
        min_length=1, max_length=64, description="DPUStoragePolicies that owners may use."
    )
    largest_gib: int = Field(default=100, ge=1, le=1 << 16, description="GiB that a volume may have at most.")


def volume_limits(config: VolumeConfig) -> VolumeLimits:
    """Return what owners may use, as the interface `dpu_services` takes it."""
    return VolumeLimits(policies=config.policies, largest_gib=config.largest_gib)
