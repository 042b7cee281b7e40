"""From a request to its share: claim at once, or decide whether to build, reclaim, wait or refuse.

Also groups and the queue.
"""

__all__ = ["allocate", "candidates", "decision", "groups", "place", "preempt", "request", "serve"]
