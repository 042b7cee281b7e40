"""Validates the requests and queries of callers. Defines the types of their fields, and readable errors."""
