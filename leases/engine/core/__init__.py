"""The foundation of the engine: mechanisms without scheduling decisions.

Statements and transactions, state transitions, runs, the installation's identity, specs for kinds, workers, watched
workloads, and tokens for periodic tasks.
"""

__all__ = ["database", "installation", "runs", "specs", "token_lease", "transitions", "workers", "workloads"]
