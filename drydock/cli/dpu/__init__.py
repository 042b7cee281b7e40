"""`drydock dpu`: what runs on a leased DPU."""

from drydock.cli.dpu.services import add_dpu

__all__ = ["add_dpu"]
