"""Scheduling turns a request into a share: it claims room at once, or decides to build, reclaim, wait or refuse."""

__all__ = ["allocate", "candidates", "decision", "place", "request"]
