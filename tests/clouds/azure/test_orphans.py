"""What stands without its machine is listed by its tags."""

from __future__ import annotations

from blueprints.cloud.inventory import owned
from tests.clouds.azure.conftest import TAGS, Bench, order

OURS = {"drydock-installation": "i1"}


def test_what_a_machine_stands_on_is_listed_without_it(bench: Bench) -> None:
    bench.prepared(order())
    bench.prepared(order(key="dd-two", tags={**TAGS, "drydock-installation": "another"}))
    found = bench.azure.remains("eastus", OURS)
    assert [(one.what, one.id, one.key) for one in found] == [
        ("network card", "dd-one-nic", "dd-one"), ("address", "dd-one-ip", "dd-one"),
        ("firewall", "dd-one-nsg", "dd-one"),
    ]  # fmt: skip
    (one,) = owned(bench.azure, [""], OURS)
    assert (one.key, one.what, one.facts["location"]) == ("dd-one", "address, firewall, network card", "eastus")
    assert bench.azure.remains("westus2", OURS) == []


def test_what_belongs_to_a_machine_is_told_with_it_and_its_disk_without(bench: Bench) -> None:
    instance = bench.made(order())
    (one,) = owned(bench.azure, [""], OURS)
    assert (one.key, one.what, one.facts["market"]) == ("dd-one", "machine", "on_demand")
    assert instance.key == one.key
