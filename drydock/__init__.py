"""Drydock leases machines, and the things that run on machines."""

DISTRIBUTION = "drydock-leases"
"""The name on PyPI, where `drydock` belongs to another project."""
