"""From a request to its share: claim at once, else decide and build, reclaim, wait or refuse; groups and the queue."""

__all__ = ["allocate", "candidates", "decision", "groups", "place", "preempt", "request", "serve"]
