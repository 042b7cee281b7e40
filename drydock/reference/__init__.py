"""Generators of documentation pages: settings, metrics, states and events. `make docs` runs them."""
