"""What every part of the engine stands on: statements and transactions, transitions of state, runs, this installation,
specs for kinds, workers, watched workloads and turns under a token. Decides nothing.
"""

__all__ = ["database", "installation", "runs", "specs", "token_lease", "transitions", "workers", "workloads"]
