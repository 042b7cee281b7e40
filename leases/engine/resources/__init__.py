"""The life of a resource outside its phases: provisioning, remembered errors, deferred cleanup, eviction, maintenance,
retirement, and resources that do not answer.
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
