"""Interfaces: typed APIs on a leased resource, over a local or an SSH transport or beside the lease's account.

They are command, console, DPU services, filesystem and httpd. The package contains the contract of each interface, its
implementations and a fake for tests.
"""
