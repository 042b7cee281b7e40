"""The foundation of the engine, on which its other packages build. It makes no scheduling decisions.

Contains statements and transactions, state transitions, runs, the identity of the installation, the values that are
passed to kinds, the list of workers, workloads and metrics, and tokens for periodic tasks.
"""

__all__ = ["database", "installation", "runs", "specs", "token_lease", "transitions", "workers", "workloads"]
