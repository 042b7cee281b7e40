"""Actions on resources: those that people request (on machines, and acts that kinds declare), and what steps need."""

__all__ = ["acts", "grants", "machines", "needs"]
