"""Drydock: leases on machines and on what stands on machines."""
