"""Interfaces: typed APIs on a leased resource (command, console, DPU services, filesystem, httpd), over a local or an SSH transport.

The package contains the contract of each interface, its implementations and a fake for tests.
"""
