"""What stands without its machine is listed by its tags."""

from __future__ import annotations

from blueprints.cloud.inventory import owned
from blueprints.gce.client import Gce
from tests.clouds.gce.conftest import TAGS, USUAL, made, prepared, until
from tests.clouds.gce.double import Double

OURS = {"drydock-installation": "i-1"}


def test_a_firewall_rule_without_its_machine_is_listed(double: Double, gce: Gce) -> None:
    prepared(gce, USUAL)
    (found,) = gce.remains("", OURS)
    assert (found.what, found.id, found.key, found.named) == ("firewall rule", "dd-one", "dd-one", True)
    assert found.tags == TAGS
    (one,) = owned(gce, [""], OURS)
    assert (one.key, one.what, one.facts["things"]) == ("dd-one", "firewall rule", ["firewall rule dd-one"])
    assert owned(gce, [""], {"drydock-installation": "another"}) == []
    until(lambda: not gce.sweep("", "", one.key, TAGS))
    assert owned(gce, [""], OURS) == []


def test_a_disk_that_nothing_uses_is_listed_with_the_rule_of_its_name(double: Double, gce: Gce) -> None:
    prepared(gce, USUAL)
    double.world.disks["us-central1-a", "dd-one"] = {
        "kind": "compute#disk", "name": "dd-one", "zone": f"{double.world.link}/zones/us-central1-a", "sizeGb": "10",
            "labels": TAGS,
        "creationTimestamp": "2026-11-01T10:00:00.000-07:00", "id": "77",
        "selfLink": f"{double.world.link}/zones/us-central1-a/disks/dd-one",
    }  # fmt: skip
    assert len(gce.remains("us-central1", OURS)) == 2
    (one,) = owned(gce, ["us-central1"], OURS)
    assert (one.what, one.facts["location"], one.facts["zone"]) == (
        "firewall rule, volume", "us-central1", "us-central1-a",
    )  # fmt: skip
    until(lambda: not gce.sweep("us-central1", one.facts["zone"], one.key, TAGS))
    assert owned(gce, ["us-central1"], OURS) == []


def test_what_belongs_to_a_machine_is_told_with_it(double: Double, gce: Gce) -> None:
    made(gce)
    (one,) = owned(gce, [""], OURS)
    assert (one.key, one.what, one.facts["market"], one.facts["type"]) == (
        "dd-one", "machine", "on_demand", USUAL.type,
    )  # fmt: skip
