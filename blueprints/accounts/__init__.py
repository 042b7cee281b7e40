"""Accounts for leases on hosts that are reached over SSH, below the kinds that have such hosts."""
