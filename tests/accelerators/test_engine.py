"""The kind accelerators through the engine: devices found in hosts of other blueprints, and leased with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blueprints.devices import has_devices, users
from drydock.core import clock
from drydock.demo import captured
from interfaces.command.jobs import JobSpec
from interfaces.errors import Unreachable
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share, Sync
from leases.reasons import Reason
from leases.validation.requests import read
from tests.accelerators.fake_smi import FakeSmi
from tests.blueprints import device_peers
from tests.blueprints import host_peers as peers
from tests.blueprints.device_peers import Place
from tests.leases.conftest import (
    _database,
    _nothing_is_swallowed,
    _quick,
    ask,
    blueprint,
    owner,
    soon,
    unhurried,
    until,
)

__all__ = ["_database", "_nothing_is_swallowed", "_quick", "ask", "blueprint", "owner", "soon", "unhurried", "until"]

pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The captured tree of a machine with a GPU that is ready and one that is not."""
    captured.write(tmp_path / "captured")
    return tmp_path / "captured"


@pytest.fixture
def host(blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]) -> Iterator[Resource]:
    """This machine as a host, which is there before its devices are found."""
    folder = Path(os.environ["DRYDOCK_STATE"]) / "accelerator-hosts"
    config = {"folder": str(folder), "first_uid": 840_000, "uids": 50, "cpu_millicores": 4000, "disk_mib": 100_000}
    blueprint("here", kind="local_host", resource_type="host", config=config, max_resources=1)
    first = until(ask("host"), seconds=60, state="active")
    release.release(first.pk, actor="ada")
    until(first, seconds=60, state="destroyed")
    yield Resource.objects.get(type="host")
    _end_all()
    assert not list(folder.glob("*/*"))


def _end_all() -> None:
    for lease in Lease.objects.filter(state__in=("pending", "acquired", "active"), need=""):
        release.release(lease.pk, actor="ada")
    end = clock.monotonic() + 60
    while Resource.objects.filter(gone_at=None).exists() and clock.monotonic() < end:
        settle()
        for resource in Resource.objects.filter(gone_at=None):
            retirement.retire_idle(resource.pk, reason=Reason.IDLE, message="The test is over.")
        clock.sleep(0.05)
    assert not Resource.objects.filter(gone_at=None).exists()
    assert not Share.objects.exists()


@pytest.fixture
def devices(blueprint: Callable[..., Any]) -> Callable[..., Any]:
    """Make a blueprint of accelerators, and read the hosts."""

    def make(**config: Any) -> Any:
        made = blueprint("devices", kind="accelerators", resource_type="accelerator", config=config)
        search(made.pk)
        return made

    return make


def search(pk: int) -> None:
    """Read every host of a blueprint now."""
    settle()
    for place in ["", *Sync.objects.filter(blueprint=pk).exclude(place="").values_list("place", flat=True), None]:
        places = Sync.objects.filter(blueprint=pk).exclude(place="") if place is None else [Sync(place=place)]
        for one in places:
            Sync.objects.filter(blueprint=pk).update(due_at="2020-01-01T00:00Z")
            discovery.discover(pk, one.place)
    settle()


def gpu() -> Resource:
    return Resource.objects.get(attributes__address=captured.GPU, gone_at=None)


@pytest.mark.slow
def test_devices_become_parts_of_the_host_that_another_blueprint_made(host, devices, tree):
    made = devices(captured=str(tree))
    found = {one.name: one for one in Resource.objects.filter(type="accelerator")}
    assert set(found) == {f"gpu {captured.GPU}", "nic 0000:00:03.0"}, "the display and the unready GPU are left out"
    assert {one.part_of_id for one in found.values()} == {host.pk}
    assert gpu().attributes["memory_mib"] == 16384
    assert gpu().traits == ["captured"]
    assert sorted(gpu().identities.values_list("namespace", "value")) == [
        ("gpu_uuid", captured.UUID.lower()), ("serial:10de", "0423718026114"),
    ]  # fmt: skip
    sync = Sync.objects.get(blueprint=made, place=str(host.pk))
    assert (sync.message, sync.found) == ("", 3)


def test_a_gpu_is_leased_with_an_account_on_its_host_and_nobody_else_gets_the_host(host, devices, tree, ask, until):
    devices(captured=str(tree))
    lease = until(ask("accelerator", requirements={"class": "gpu", "model": "P100"}), seconds=60, state="active")
    below = Lease.objects.get(for_lease=lease)
    assert (below.resource_id, below.need, below.state) == (host.pk, "host", "active")
    command: Any = specs.lease_view(lease).interface("command")
    said = command.check('echo "$CUDA_VISIBLE_DEVICES $DRYDOCK_DEVICES"').text.split()
    assert said == [captured.UUID, captured.GPU]
    files: Any = specs.lease_view(lease).interface("filesystem")
    files.write_text("note", "mine")
    assert command.check("cat note").text == "mine"
    whole = ask("host", exclusive=True)
    settle()
    whole.refresh_from_db()
    assert whole.state == "pending"
    assert f"gpu {captured.GPU} below it is leased" in whole.message
    second = ask("accelerator", requirements={"class": "gpu"})
    settle()
    second.refresh_from_db()
    assert second.state == "pending"
    release.release(second.pk, actor="ada")
    release.release(lease.pk, actor="ada")
    until(whole, seconds=60, state="active")


def test_a_host_and_its_gpu_in_one_group(host, devices, tree, owner, until):
    devices(captured=str(tree))
    asked = [read({"type": "host", "exclusive": True}), read({"type": "accelerator", "requirements": {"class": "gpu"}})]
    _, ids = request.request_group(asked, owner.pk, actor="ada", same="host")
    leases = [until(Lease.objects.get(pk=pk), seconds=60, state="active") for pk in ids]
    assert [lease.resource_id for lease in leases] == [host.pk, gpu().pk]
    assert not Lease.objects.filter(for_lease=leases[1]).exists(), "the account is that of the group's lease"
    accounts = [specs.lease_view(lease).interface("command").check("id -u").text for lease in leases]  # type: ignore[attr-defined]
    assert accounts[0] == accounts[1]
    release.release(leases[0].pk, actor="ada")
    until(leases[1], seconds=60, state="destroyed")


@pytest.mark.slow
def test_a_device_that_is_no_longer_ready_serves_no_leases_until_it_is_again(host, devices, tree, ask, until):
    made = devices(captured=str(tree))
    link = tree / "sys/bus/pci/devices" / captured.GPU / "driver"
    target = os.readlink(link)
    link.unlink()
    search(made.pk)
    assert gpu().quarantined
    assert gpu().note == "Not ready: setup required. No kernel driver is bound to the device."
    link.symlink_to(target)
    search(made.pk)
    assert not gpu().quarantined
    until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")


OPENED, DENIED, FORBIDDEN = "opened", "Permission denied", "Operation not permitted"


@pytest.fixture
def place() -> Iterator[Place]:
    """Real device nodes of this machine."""
    with device_peers.place() as made:
        yield made


def opens(lease: Lease, path: str) -> str:
    """`opened`, or the kernel's error, when a command of the lease opens the node."""
    command: Any = specs.lease_view(lease).interface("command")
    said = command.run(["/bin/sh", "-c", f": 2>&1 <{path} && echo opened"], timeout=20).text.strip()
    return str(said.rpartition(": ")[2])


def forge(resource: Resource, identities: dict[str, str] | None = None, **known: Any) -> None:
    """Change what was reported of a device, as an agent that was taken over can."""
    facts = resource.facts
    facts["device"] |= known | ({"identities": identities} if identities else {})
    Resource.objects.filter(pk=resource.pk).update(facts=facts)


def test_only_the_account_of_the_lease_opens_the_nodes_of_its_device(place, host, devices, tree, ask, until):
    paths = {address: place.node(index).path for index, address in enumerate((captured.GPU, captured.NIC))}
    devices(captured=str(tree), nodes={address: [path] for address, path in paths.items()})
    mine, other, plain = (until(lease, seconds=60, state="active") for lease in (
        ask("accelerator", requirements={"class": "gpu"}), ask("accelerator", requirements={"class": "nic"}),
        ask("host"),
    ))  # fmt: skip
    node = paths[captured.GPU]
    assert [opens(lease, node) for lease in (mine, other, plain)] == [OPENED, DENIED, DENIED]
    assert opens(other, paths[captured.NIC]) == OPENED
    facts = Lease.objects.get(pk=mine.pk).facts
    cdi = Path("/run/cdi/drydock-gpu-0000-06-00.0.json")
    assert facts["container_device"] in f"drydock.dev/gpu={json.loads(cdi.read_text())['devices'][0]['name']}"
    if facts["isolation"] == "cgroup-v1":
        os.chmod(node, 0o666)  # as the setuid program of a driver does
        assert [opens(lease, node) for lease in (mine, other)] == [OPENED, FORBIDDEN]
    forge(gpu(), nodes=["/dev/null", "/etc/passwd", "/dev/../etc/shadow"], vendor="; reboot")
    forge(gpu(), {"uuid": "a b"}, attach="netns", part_of="all", **{"class": "no class"})
    for lease in (mine, other, plain):
        release.release(lease.pk, actor="ada")
    for lease in (mine, other, plain):
        until(lease, seconds=60, state="destroyed")
    assert [os.stat(path).st_mode & 0o777 for path in paths.values()] == [0o600, 0o600]
    assert not cdi.exists()
    _end_all()
    assert [os.stat(path).st_mode & 0o777 for path in paths.values()] == [0o666, 0o666]
    assert not device_peers.RECORD.exists()
    assert not Path("/var/lib/drydock-devices").exists()


@pytest.mark.slow
def test_the_account_of_a_group_loses_a_device_with_its_lease_and_keeps_the_rest(
    place, host, devices, tree, owner, until
):
    node = place.node(0).path
    devices(captured=str(tree), nodes={captured.GPU: [node]})
    whole, card = in_group(owner, until)
    command: Any = specs.lease_view(whole).interface("command")
    user = command.jobs.start(JobSpec(id="user", words=f"exec sleep 300 <{node}"))
    beside = command.jobs.start(JobSpec(id="beside", words="exec sleep 300"))
    number = place.numbers[0]
    peers.eventually(lambda: users(place.shell, [number]))
    release.release(card.pk, actor="ada")
    until(card, seconds=60, state="destroyed")
    assert not users(place.shell, [number])
    assert command.jobs.wait(user.id, timeout=20).exit_code == 137
    assert command.jobs.status(beside.id).exit_code is None
    assert opens(whole, node) in (DENIED, FORBIDDEN)


@pytest.mark.slow
def test_the_nodes_are_closed_before_the_account_of_a_group_is_given_to_another_lease(
    place, host, devices, tree, owner, until, monkeypatch
):
    """The lease of the host ends first. Its uid must not take the device to its next owner."""
    node = place.node(0).path
    devices(captured=str(tree), nodes={captured.GPU: [node]})
    whole, card = in_group(owner, until)
    uid = card.facts["account"]["uid"]
    assert has_devices(uid)
    monkeypatch.setattr("blueprints.accelerators.access.shell", _unreachable)
    release.release(whole.pk, actor="ada")
    until(whole, seconds=60, state="destroyed")
    assert not has_devices(uid)
    assert os.stat(node).st_mode & 0o777 == 0o600
    monkeypatch.undo()
    until(card, seconds=60, state="destroyed")


def _unreachable(spec: Any) -> Any:
    raise Unreachable("The host does not answer.")


@pytest.mark.slow
def test_a_gpu_that_stays_in_use_after_its_lease_serves_no_other_until_it_is_clean(
    host, devices, tree, ask, until, tmp_path
):
    smi = FakeSmi(tmp_path / "tools")
    tmp_path.chmod(0o755)
    devices(captured=str(tree), tools=str(smi.folder), reset="never")
    lease = until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")
    smi.set(used="9000", compute_mode="Exclusive_Process")
    release.release(lease.pk, actor="ada")
    until(lease, seconds=120, state="destroyed")
    assert gpu().quarantined
    assert "9000 MiB of memory are in use; before the lease it was 2 MiB" in gpu().note
    assert smi.read()["compute_mode"] == "Default"
    waiting = ask("accelerator", requirements={"class": "gpu"})
    settle()
    waiting.refresh_from_db()
    assert waiting.state == "pending"


def in_group(owner: Any, until: Callable[..., Any]) -> list[Lease]:
    """An active lease of the host, and one of the GPU that uses its account."""
    asked = [read({"type": "host"}), read({"type": "accelerator", "requirements": {"class": "gpu"}})]
    _, ids = request.request_group(asked, owner.pk, actor="ada")
    for pk in ids:
        until(Lease.objects.get(pk=pk), seconds=60, state="active")
    return [Lease.objects.get(pk=pk) for pk in ids]


@pytest.mark.slow
def test_a_device_with_nodes_is_refused_where_leases_share_an_account(
    place, host, devices, tree, ask, until, monkeypatch
):
    made = devices(captured=str(tree), nodes={captured.GPU: [place.node(0).path]})
    monkeypatch.setattr("blueprints.local.machine.as_root", lambda: False)
    lease = ask("accelerator", requirements={"class": "gpu"})
    end = clock.monotonic() + 60
    while "share an account" not in lease.message and clock.monotonic() < end:
        settle()
        lease.refresh_from_db()
    assert "set isolation to none in the blueprint" in lease.message
    assert os.stat(place.node(0).path).st_mode & 0o777 == 0o666
    type(made).objects.filter(pk=made.pk).update(config=made.config | {"isolation": "none"})
    lease = until(lease, seconds=60, state="active")
    assert lease.facts["isolation"] == "none"
