"""Phases of leases and resources, carried out step by step, and what follows from their outcomes; release."""

__all__ = ["lease_phases", "machine_phases", "needs", "phases", "release", "resource_phases", "runner", "step_results"]
