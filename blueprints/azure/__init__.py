"""Machines at Microsoft Azure."""
