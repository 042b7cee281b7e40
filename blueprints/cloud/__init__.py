"""Shared code of the kinds of cloud hosts: the provider contract, its values and errors, and the steps of a host."""
