"""Hints, their handlers, and the lifecycle of a worker.

The database is the source of truth. A hint says that something may be due; losing one costs time, never correctness.
"""
