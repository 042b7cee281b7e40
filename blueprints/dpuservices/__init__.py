"""Shared code of the kinds whose leases have services on a DPU: what their config allows owners to write."""

from blueprints.dpuservices.chains import ChainConfig, limits
from blueprints.dpuservices.charts import ChartConfig, allowed
from blueprints.dpuservices.networks import Ranges, networks_need_chains
from blueprints.dpuservices.volumes import VolumeConfig, volume_limits
from blueprints.dpuservices.vpcs import VpcConfig

__all__ = [
    "ChainConfig",
    "ChartConfig",
    "Ranges",
    "VolumeConfig",
    "VpcConfig",
    "allowed",
    "limits",
    "networks_need_chains",
    "volume_limits",
]
