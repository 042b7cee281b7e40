"""Blueprints: how resources are built, used, checked, updated, cleaned and destroyed.

The package has the contract of kinds, a registry of them, the models of blueprints and credentials, and the kinds
themselves, one folder each. Kinds know no database and no queue.
"""
