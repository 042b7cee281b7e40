"""Leases of resources: the models, the engine, operations, REST, the console and the Python API."""
