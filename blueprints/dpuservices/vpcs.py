"""The VPCs that the config of a blueprint lets owners put their DPU into."""

from __future__ import annotations

from pydantic import Field

from blueprints.dpuservices.chains import ChainConfig
from blueprints.dpuservices.networks import Ranges
from blueprints.dpuservices.volumes import ObjectName


class VpcConfig(ChainConfig):
    """VPCs that owners may create on their DPU, with VFs and a network as for chains."""

    isolations: tuple[ObjectName, ...] = Field(
        min_length=1, max_length=64, description="IsolationClasses that owners may use."
    )
    subnets: Ranges = Field(
        min_length=1, max_length=64, description="Ranges of addresses that owners may use for virtual networks."
    )
