"""Drydock: leases on machines and on what stands on machines."""

DISTRIBUTION = "drydock-leases"
"""The name on PyPI, where `drydock` belongs to another project."""
