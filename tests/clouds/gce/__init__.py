"""Compute Engine: our client and the double that it is tried against."""
