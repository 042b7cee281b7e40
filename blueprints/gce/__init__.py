"""Machines at Google Compute Engine."""
