"""`drydock instances`, `offers`, `locations` and `instance-types`: cloud machines, and what providers offer."""

from drydock.cli.clouds.instances import add_instances
from drydock.cli.clouds.offers import add_locations, add_offers

__all__ = ["add_instances", "add_locations", "add_offers"]
