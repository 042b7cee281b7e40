"""Stored blueprints, credentials, the catalogue, and remembered errors."""

from blueprints.models.blueprint import Blueprint, Credential, Present, RememberedError
from blueprints.models.catalogue import Allowance, Listing, Reading

__all__ = ["Allowance", "Blueprint", "Credential", "Listing", "Present", "Reading", "RememberedError"]
