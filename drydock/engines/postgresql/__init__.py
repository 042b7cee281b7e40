"""Django's PostgreSQL backend, which starts the private engine at the first connection."""
