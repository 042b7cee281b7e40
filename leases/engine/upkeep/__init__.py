"""Periodic checks: everything that is due, pools, renewals, pruning."""

__all__ = ["lease_checks", "pools", "pruning", "renewals", "run_checks", "sweep"]
