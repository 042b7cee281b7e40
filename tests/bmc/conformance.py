"""The conformance suite of BMC drivers, which is part of the package so that strangers can run it."""

from blueprints.testing.bmc import BmcConformance

__all__ = ["BmcConformance"]
