"""A QEMU machine is enrolled by the engine: its own ramdisk, its own medium, its own disks, and records of erasure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint, Credential
from interfaces.keys import new_key_pair
from interfaces.ssh.pool import POOL
from leases.models import ErasureRecord, Resource
from leases.operations import resources
from leases.operations.callers import caller
from tests.blueprints.host_peers import WORKER
from tests.bmc.double import redfish_double
from tests.leases.conftest import _database, _quick, blueprint, soon, until
from tests.metal import ramdisk
from tests.metal.qemu_machine import QemuMachine, qemu_machine
from tests.metal.test_ramdisk_boot import CANARY, holds, plant

__all__ = ["_database", "_quick", "blueprint", "soon", "until"]

pytestmark = [pytest.mark.metal, pytest.mark.timeout(1700, func_only=False)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[QemuMachine, str]]:
    """A machine whose disks are full of a former tenant, and the address of the ramdisk."""
    ramdisk.require()
    with ramdisk.site(ramdisk.built()) as port, qemu_machine(tmp_path / "m", f"127.9.7.{WORKER + 1}") as made:
        plant(made)
        yield made, f"http://127.0.0.1:{port}/ramdisk.iso"
        POOL.close_idle(0)


@pytest.mark.usefixtures("soon")
def test_a_machine_is_enrolled_erased_and_off(
    machine: tuple[QemuMachine, str], blueprint: Callable[..., Blueprint], until: Any, live_server: Any, settings: Any
) -> None:
    qemu, url = machine
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"boot_url": live_server.url, "step_token_seconds": 120.0})
    control, operator = new_key_pair("control"), caller(User.objects.create_superuser("root"))
    Credential.objects.create(name="control", secrets={"private_key": control.private})
    with redfish_double(qemu) as double:
        Credential.objects.create(name="bmc", secrets=double.credential())
        image = {"url": "http://127.0.0.1:9/never", "sha256": "0" * 64, "format": "raw"}
        blueprint("rack", kind="bare_metal", resource_type="host", config={
            "credential": "control", "bmc_credential": "bmc", "compare": "require", "accounts": "shared",
            "ramdisk": {"url": url, "port": qemu.qemu.port, "boot_timeout": ramdisk.PATIENCE, "samples": 8},
            "images": {"never": image},
        })  # fmt: skip
        bmc = {"driver": "redfish", **double.access()}
        where = {"address": qemu.qemu.address, "port": qemu.qemu.port, "user": "root", "name": "alpha", "bmc": bmc}
        made = resources.register(operator, "rack", where)
        alpha = until(Resource.objects.get(pk=made.id), seconds=ramdisk.PATIENCE, state="active")
    assert (alpha.power, qemu.power_state) == ("off", "Off")
    assert not [slot for slot, it in qemu.media.items() if it.get("Inserted")]
    assert not any(holds(qemu, name, CANARY) for name in qemu.qemu.disks)
    records = {one.serial: one for one in ErasureRecord.objects.filter(resource=alpha)}
    assert {serial: one.method for serial, one in records.items()} == {
        "NVME-DRYDOCK-1": "nvme_format", "SATA-DRYDOCK-1": "overwrite",
    }  # fmt: skip
    assert all(one.verified for one in records.values())
