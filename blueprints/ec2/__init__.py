"""Machines at Amazon EC2, and at private clouds that speak its API."""
