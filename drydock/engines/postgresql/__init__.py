"""Django's PostgreSQL backend, with the private engine started at the first connection."""
