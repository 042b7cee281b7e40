"""Periodic upkeep: all periodic checks, warm pools, renewals and pruning."""

__all__ = ["lease_checks", "pools", "pruning", "renewals", "run_checks", "sweep"]
