"""Drydock leases machines, and the things that run on machines."""

DISTRIBUTION = "drydock-leases"
"""Name of the distribution on PyPI, where the name `drydock` belongs to another project."""
