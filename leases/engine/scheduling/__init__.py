"""Scheduling turns a request into a share: it claims room at once, or decides to build, reclaim, wait or refuse.

It also serves the queue and grants groups.
"""

__all__ = ["allocate", "candidates", "decision", "groups", "opinions", "place", "request", "serve"]
