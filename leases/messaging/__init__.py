"""Hints, their handlers, and the lifecycle of a worker.

The database is the source of truth. A hint only says that something may be due, so a lost hint costs time and does no
other harm.
"""
