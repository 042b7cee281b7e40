"""A kind that builds nothing real: deterministic, shared by processes, with faults on demand."""
