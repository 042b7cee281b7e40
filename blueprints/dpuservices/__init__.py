"""Shared code of the kinds whose leases have services on a DPU: the charts that their config allows."""

from blueprints.dpuservices.charts import ChartConfig, allowed

__all__ = ["ChartConfig", "allowed"]
