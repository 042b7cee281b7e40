"""Blueprints: how resources are built, used, checked, updated, cleaned and destroyed.

The package contains the contract that every kind implements, the registry of kinds, the models of blueprints and
credentials, and the kinds themselves, one folder each. Kinds use neither the database nor the queue.
"""
