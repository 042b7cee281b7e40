"""A small Django project of somebody else's, which installs ours and asks for leases."""
