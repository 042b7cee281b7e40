"""Actions on resources: on machines, acts that kinds declare, updates of leased resources, and what steps need."""

__all__ = ["acts", "grants", "machines", "needs", "updates"]
