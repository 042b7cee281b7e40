"""Drydock: leases on machines and on what stands on machines."""

DISTRIBUTION = "drydock-leases"
"""The name for pip. On PyPI, `drydock` is another project's."""
