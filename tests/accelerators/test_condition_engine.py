"""Health and FPGA images through leases: a failing device ends or tells its lease, and an FPGA is programmed for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drydock.core import clock
from drydock.demo import captured
from leases.engine.core import workers
from leases.engine.core.runs import start
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import attention, machines
from leases.operations.callers import caller
from tests.accelerators.fake_fpga import BLANK, FILTER, FPGA, OTHER, FakeFpga
from tests.accelerators.fake_smi import FakeSmi
from tests.accelerators.test_engine import (
    _database,
    _nothing_is_swallowed,
    _quick,
    ask,
    blueprint,
    devices,
    gpu,
    host,
    owner,
    search,
    soon,
    tree,
    unhurried,
    until,
)  # fmt: skip
from tests.blueprints import host_peers as peers

__all__ = [
    "_database", "_nothing_is_swallowed", "_quick", "ask", "blueprint", "devices", "host", "owner", "soon",
    "tree", "unhurried", "until",
]  # fmt: skip

pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon", "unhurried")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


LINE = "[  100.500000] NVRM: Xid (PCI:{}): {}\n"


@pytest.fixture
def root(django_user_model: Any) -> Any:
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


def check(resource: Resource, times: int = 1) -> Resource:
    """Check a resource, so many times in a row, and return it."""
    for _ in range(times):
        start(resource_id=resource.pk, phase="check")
        settle()
    resource.refresh_from_db()
    return resource


def log(tree: Path, *numbers: int) -> None:
    text = "".join(LINE.format(captured.GPU.removesuffix(".0"), number) for number in numbers)
    (tree / "drydock-tools/kernel-log.out").write_text(text)


def test_an_xid_breaks_the_lease_of_its_time_and_the_gpu_serves_no_other_until_it_is_repaired(
    host, devices, tree, ask, until, root
):
    log(tree, 95)  # before Drydock knew the GPU
    devices(captured=str(tree))
    check(gpu())
    lease = until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")
    log(tree, 95, 13)
    assert check(gpu()).health == "ok", "an old error and one of an application"
    log(tree, 95, 13, 48)
    found = check(gpu(), times=3)
    assert (found.health, found.health_reason) == ("failed", "The GPU found an uncorrectable memory error. (Xid 48)")
    lease = until(lease, seconds=60, state="broken")
    assert "Xid 48" in lease.message
    assert gpu().quarantined
    assert Event.objects.filter(kind="lease.health", lease=lease).exists()
    machines.start_act(root, gpu().pk, "repaired", arguments={})
    settle()
    found = check(gpu())
    assert (found.health, found.health_reason) == ("ok", "")


@pytest.mark.slow
def test_a_lease_is_only_told_if_the_blueprint_says_so(host, devices, tree, ask, until):
    devices(captured=str(tree), on_failure="tell")
    lease = until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")
    log(tree, 119)
    found = check(gpu(), times=4)
    lease.refresh_from_db()
    assert (lease.state, found.health, found.quarantined) == ("active", "degraded", False)
    told = Event.objects.get(kind="lease.interruption", lease=lease)
    assert "Xid 119" in told.message
    release.release(lease.pk, actor="ada")
    until(lease, seconds=60, state="destroyed")
    assert gpu().quarantined, "it needs a reset, and has no tool for that"


@pytest.mark.slow
def test_a_gpu_is_reset_between_leases_and_returns(host, devices, tree, ask, until, tmp_path):
    smi = FakeSmi(tmp_path / "tools")
    tmp_path.chmod(0o755)
    devices(captured=str(tree), tools=str(smi.folder), on_failure="tell")
    lease = until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")
    log(tree, 95)
    release.release(lease.pk, actor="ada")
    until(lease, seconds=60, state="destroyed")
    assert (smi.read()["resets"], gpu().quarantined) == ("reset", False)


def test_a_degraded_gpu_is_shown_and_serves_leases_as_a_last_resort(host, devices, tree, ask, until, root):
    made = devices(captured=str(tree))
    output = tree / "drydock-tools/nvidia-smi.out"
    sound = output.read_text()
    output.write_text(sound.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"))
    search(made.pk)
    assert (gpu().health, gpu().health_reason) == (
        "degraded", "2 uncorrectable DRAM errors since the driver was loaded.",
    )  # fmt: skip
    assert gpu().health_reason in str(attention.needed(root))
    until(ask("accelerator", requirements={"class": "gpu"}), seconds=60, state="active")
    output.write_text(sound)
    search(made.pk)
    assert gpu().health == "ok"


@pytest.fixture
def fpga(tmp_path: Path) -> FakeFpga:
    tmp_path.chmod(0o755)
    return FakeFpga(tmp_path)


def card() -> Resource:
    return Resource.objects.get(attributes__address=FPGA, gone_at=None)


@pytest.fixture
def programmable(host: Any, devices: Callable[..., Any], fpga: FakeFpga) -> FakeFpga:
    if os.geteuid() != 0:
        pytest.skip("only root programs an FPGA")
    devices(captured=str(fpga.root), tools=str(fpga.tools), images=fpga.images())
    return fpga


def test_an_fpga_has_the_image_of_its_lease_and_is_blank_before_the_next_one(programmable, ask, until):
    assert card().attributes["images"] == ["filter", "other"]
    lease = until(ask("accelerator", requirements={"class": "fpga", "image": "filter"}), seconds=60, state="active")
    assert (lease.facts["image"], lease.facts["afu_id"]) == ("filter", FILTER)
    assert programmable.afu.read_text().strip() == FILTER
    release.release(lease.pk, actor="ada")
    until(lease, seconds=60, state="destroyed")
    assert programmable.afu.read_text().strip() == BLANK
    assert not Path("/var/lib/drydock-images").exists()
    missing = ask("accelerator", requirements={"class": "fpga", "image": "empty"})
    settle()
    missing.refresh_from_db()
    assert missing.state == "pending", "the blank image is not for leases"


@pytest.mark.slow
def test_an_image_with_another_sha256_reaches_no_lease_and_no_fpga(programmable, ask):
    (programmable.folder / "filter.gbs").write_bytes(b"replaced")
    lease = ask("accelerator", requirements={"class": "fpga", "image": "filter"})
    for _ in range(20):
        settle()
        lease.refresh_from_db()
        if "SHA-256" in lease.message:
            break
    assert "filter.gbs has the SHA-256" in lease.message
    assert lease.state != "active"
    assert FILTER not in programmable.afu.read_text()


def test_an_operator_programs_an_fpga_and_one_that_was_left_half_programmed_fails(programmable, root):
    machines.start_act(root, card().pk, "program", arguments={"image": "other"})
    settle()
    assert programmable.afu.read_text().strip() == OTHER
    assert check(card()).health == "ok"
    (programmable.state / "lies").touch()
    machines.start_act(root, card().pk, "program", arguments={"image": "filter"})
    until = clock.monotonic() + 60
    while (
        not (failed := Event.objects.filter(kind="act.failed", resource=card()).exists()) and clock.monotonic() < until
    ):
        settle()
        clock.sleep(0.1)
    assert failed
    assert check(card(), times=3).health_reason == "The FPGA was left half-programmed. Program it again."
    assert card().quarantined
    (programmable.state / "lies").unlink()
    machines.start_act(root, card().pk, "program", arguments={"image": "empty"})
    settle()
    assert check(card()).health == "ok"
    assert not Lease.objects.filter(state="active", need="").exists()
