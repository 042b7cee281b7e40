"""Kinds that build on leases of other resources: a folder on a host, a site in a folder, a repository on a host."""
