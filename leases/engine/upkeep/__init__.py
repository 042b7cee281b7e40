"""Periodic upkeep: all periodic checks, warm pools, renewals and pruning."""

__all__ = ["agent_checks", "lease_checks", "pools", "preempt", "pruning", "renewals", "run_checks", "sweep"]
