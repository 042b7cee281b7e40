"""Everything one can ask of the engine, for a caller who sees and touches only what is theirs.

Python, shell, admin and REST are faces of these functions. Each is given a `Caller`, answers with the frozen
values of `leases.client.values`, and raises DrydockErrors with field and hint. What is no transition leaves an
event with the caller's name.
"""
