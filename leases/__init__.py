"""Leases: who holds which resource. Models, the engine, operations, REST, the console and the Python API."""
