"""Validates what callers may request: requests and queries, their field types, and readable errors."""
