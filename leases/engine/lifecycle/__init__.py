"""Carries out the phases of leases and resources step by step, acts on their outcomes, and releases leases."""

__all__ = ["bulk_checks", "lease_phases", "phases", "release", "resource_phases", "runner", "step_results", "watches"]
