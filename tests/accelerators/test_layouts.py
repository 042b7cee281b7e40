"""Layouts through the engine: cards are drained, changed and read again. A program stands for the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drydock.core import clock
from drydock_client.values import BlueprintChange
from leases.engine.core import specs, workers
from leases.engine.lifecycle import release
from leases.engine.upkeep import pools
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import blueprints, machines, resources
from leases.operations.callers import caller
from tests.accelerators import fake_ip
from tests.accelerators import fake_sysfs as sysfs
from tests.accelerators.fake_ip import FakeIp
from tests.accelerators.fake_sysfs import CARD, OTHER
from tests.accelerators.test_engine import (
    _alone,
    _database,
    _nothing_is_swallowed,
    _quick,
    ask,
    blueprint,
    devices,
    host,
    owner,
    search,
    soon,
    unhurried,
    until,
)
from tests.blueprints import device_peers
from tests.blueprints import host_peers as peers

__all__ = [
    "_alone", "_database", "_nothing_is_swallowed", "_quick", "ask", "blueprint", "devices", "host", "owner", "soon",
    "unhurried", "until",
]  # fmt: skip

pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    peers.needs_root()
    sysfs.write(tmp_path / "captured")
    with sysfs.kernel(tmp_path / "captured"):
        yield tmp_path / "captured"


@pytest.fixture
def root(django_user_model: Any) -> Any:
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


def there(**attributes: Any) -> dict[str, Resource]:
    """The devices that are there, by address."""
    found = Resource.objects.filter(type="accelerator", gone_at=None, state="active")
    return {one.attributes["address"]: one for one in found.filter(attributes__contains=attributes)}


def eventually(holds: Any, seconds: float = 40.0) -> Any:
    """What `holds` returns, once it is true."""
    end = clock.monotonic() + seconds
    while not (found := holds()):
        pools.roll_outdated()
        settle()
        assert clock.monotonic() < end, "it did not come true"
        clock.sleep(0.05)
    return found


def change(root: Any, config: Any) -> None:
    blueprints.change(root, "devices", BlueprintChange(config=config))
    settle()


@pytest.mark.slow
def test_a_changed_number_of_vfs_waits_for_their_leases(host, devices, tree, ask, until, root):
    base = {"captured": str(tree), "classes": ["nic", "vf"]}
    made = devices(**base, vfs=[{"address": CARD, "count": 2}])
    vfs = eventually(lambda: len(there(**{"class": "vf"})) == 2 and there(**{"class": "vf"}))
    assert there()[CARD].facts["device"]["sriov"], "a new card is brought to its layout before its first lease"
    assert {one.part_of_id for one in vfs.values()} == {there()[CARD].pk}
    lease = until(ask("accelerator", requirements={"class": "vf"}), seconds=60, state="active")
    change(root, base | {"vfs": [{"address": CARD, "count": 3}]})
    waiting = ask("accelerator", requirements={"class": "vf"})
    for _ in range(5):
        pools.roll_outdated()
        settle()
    waiting.refresh_from_db()
    assert waiting.state == "pending", "no new lease on a card that is to be changed, nor on its other VF"
    assert len(sysfs.vfs_of(tree, CARD)) == 2, "and no change under a lease"
    assert there()[CARD].in_maintenance
    release.release(lease.pk, actor="ada")
    until(lease, seconds=60, state="destroyed")
    eventually(lambda: len(there(**{"class": "vf"})) == 3)
    assert len(sysfs.vfs_of(tree, CARD)) == 3
    until(waiting, seconds=60, state="active")
    before = [one.pk for one in vfs.values()]
    assert set(Resource.objects.filter(pk__in=before).values_list("state", flat=True)) == {"destroyed"}
    assert Event.objects.filter(resource__in=before, reason="reconfigured").count() == 2
    assert not Event.objects.filter(kind="resource.lost").exists(), "VFs that disappear this way are not lost"
    search(made.pk)
    assert len(there(**{"class": "vf"})) == 3


@pytest.mark.slow
def test_a_layout_that_cannot_be_had_is_shown_and_serves_no_lease(host, devices, tree, ask, root):
    devices(captured=str(tree), classes=["nic", "vf"], vfs=[{"address": CARD, "count": 9}])
    said = "offers at most 8 VFs; 9 were requested"
    eventually(lambda: Event.objects.filter(resource=there()[CARD].pk, message__contains=said).exists())
    card = there()[CARD]
    assert card.in_maintenance
    other = there()[OTHER]
    assert not other.in_maintenance
    assert said in card.note or said in str(resources.get(root, card.pk))


def test_setup_is_an_act_on_a_device_that_is_not_ready(host, devices, tree, ask, until, root):
    sysfs.bind(tree, CARD, "")
    sysfs.bind(tree, OTHER, "")
    devices(captured=str(tree), classes=["nic"], setup=[CARD])
    assert set(there(**{"class": "nic"})) == {CARD}, "only devices that the blueprint names are known before"
    lease = ask("accelerator", requirements={"class": "nic"})
    settle()
    lease.refresh_from_db()
    assert lease.state == "pending"
    resources_act(root, there()[CARD].pk, {})
    until(lease, seconds=60, state="active")
    assert sysfs.driver_of(tree, CARD) == "ice"
    with pytest.raises(Exception, match="setup requires that no other lease does"):
        resources_act(root, there()[CARD].pk, {"driver": "vfio-pci"})
    assert Event.objects.filter(kind="act.done", details__act="setup").exists()


def resources_act(root: Any, pk: int, arguments: Any) -> None:
    machines.start_act(root, pk, "setup", arguments=arguments)
    settle()


def test_the_interface_of_a_vf_belongs_to_its_lease(host, devices, tree, ask, until, tmp_path):
    program = FakeIp(tmp_path / "tools")
    with device_peers.links(tmp_path / "links", ["0000:00:00.0"]) as links:
        link = links["0000:00:00.0"]
        before = links.state("0000:00:00.0")
        at = tree / "sys/bus/pci/devices"
        (at / CARD / "net" / fake_ip.CARD).mkdir(parents=True)
        (at / CARD / "sriov_numvfs").write_text("2\n")
        eventually(lambda: len(sysfs.vfs_of(tree, CARD)) == 2)
        (at / "0000:3b:02.0/net" / link).mkdir(parents=True)
        declared = {"attach": "netns", "addresses": ["192.0.2.7/24"], "mac": "02:00:5e:00:53:07", "vlan": 100}
        networks = [{"address": "0000:3b:02.0", **declared}]
        devices(captured=str(tree), tools=str(tmp_path / "tools"), networks=networks)
        lease = until(ask("accelerator", requirements={"attach": "netns"}), seconds=60, state="active")
        plain = until(ask("host"), seconds=60, state="active")
        command: Any = specs.lease_view(lease).interface("command")
        assert command.check('echo "$DRYDOCK_INTERFACES"').text.strip() == link
        seen = "ip -o address show; ip -o link show"
        assert "192.0.2.7/24" in command.check(seen).text
        assert "02:00:5e:00:53:07" in command.check(seen).text
        assert program.read(0)["vlan_list"] == [{"vlan": 100}]
        other: Any = specs.lease_view(plain).interface("command")
        assert f" {link}" not in other.check(seen).text.replace(f"{link}p", "")
        release.release(lease.pk, actor="ada")
        until(lease, seconds=60, state="destroyed")
        assert links.state("0000:00:00.0") == before
        assert program.read(0) == {"vf": 0, **fake_ip.FRESH}
        assert not list(Path("/run/netns").glob("drydock-84*"))
        assert Lease.objects.get(pk=lease.pk).facts["network"]["interfaces"] == [link]
