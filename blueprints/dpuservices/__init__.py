"""Shared code of the kinds whose leases have services on a DPU: the charts and chains that their config allows."""

from blueprints.dpuservices.chains import ChainConfig, limits
from blueprints.dpuservices.charts import ChartConfig, allowed

__all__ = ["ChainConfig", "ChartConfig", "allowed", "limits"]
