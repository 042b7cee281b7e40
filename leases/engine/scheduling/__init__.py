"""Takes a request to its share: claim at once, or decide whether to build, reclaim, wait or refuse.

Groups and the queue are here too.
"""

__all__ = ["allocate", "candidates", "decision", "groups", "place", "preempt", "request", "serve"]
