"""The life of a resource outside its phases.

Contains provisioning, remembered errors, deferred cleanup, eviction, maintenance, retirement, and unreachable
resources.
"""

__all__ = [
    "cleanup",
    "eviction",
    "failures",
    "maintenance",
    "provision",
    "remembered_errors",
    "retirement",
    "unreachable",
]
