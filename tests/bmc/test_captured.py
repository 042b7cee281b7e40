"""Captured trees of real BMCs, inspected through the driver, against facts that were established by other means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from blueprints.bmc.errors import BmcLacks
from blueprints.bmc.redfish import Redfish
from blueprints.bmc.values import Inventory, PowerAction, PowerState
from tests.bmc.captured import Captured, captured, expected, names, needed, tree

pytestmark = needed

DELL, DPU = "dell_poweredge_r750.tar.gz", "nvidia_dpu.tar.gz"


class Seen:
    """What was read from one capture."""

    def __init__(self, name: str) -> None:
        self.facts: dict[str, Any] = expected()["redfish"][name]
        with captured(name) as self.bmc, opened(self.bmc) as session:
            self.inventory: Inventory = session.inspect()
            self.power, self.actions = session.power(), session.power_actions()
            self.boot, self.media = session.boot(), session.media()
            self.sensors, self.events, self.login = session.sensors(), session.entries(), session.login()
            self.secure_boot, self.settings = session.secure_boot(), session.settings()
            self.update = refusal(session)


def opened(bmc: Captured) -> Any:
    return Redfish().open(Redfish.Access(**bmc.access()), bmc.credential(), deadline=110)


def refusal(session: Any) -> str:
    try:
        session.start_update("http://127.0.0.1/image.bin")
    except BmcLacks as error:
        return error.message
    return ""


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Seen]]:
    return {name: Seen(name) for name in names()}


@pytest.mark.parametrize("name", names())
def test_the_machine_is_the_expected_one(seen, name):
    found, system = seen[name].inventory, seen[name].facts["systems"][0]
    assert found.serial == system["serial"]
    assert found.sku == system["sku"]
    assert found.uuid == system["uuid"]
    assert found.bios_version == (system["bios_version"] or "")
    assert found.health == "ok"
    assert found.cpus == system["processor_count"]
    assert found.memory_mib == system["memory_GiB"] * 1024
    assert seen[name].power is PowerState.ON
    assert seen[name].boot is None
    assert seen[name].secure_boot.enabled is system["secure_boot_enable"]
    assert not found.missing
    assert str(found.identities[1]) == f"dmi_uuid {system['uuid']}"


@pytest.mark.parametrize("name", names())
def test_the_actions_are_the_expected_ones_inline_or_behind_action_info(seen, name):
    kinds = {"On": PowerAction.ON, "ForceOff": PowerAction.OFF, "GracefulShutdown": PowerAction.SHUTDOWN}
    kinds |= {"ForceRestart": PowerAction.RESET, "PowerCycle": PowerAction.CYCLE, "Nmi": PowerAction.NMI}
    assert seen[name].actions == {
        kinds[one] for one in seen[name].facts["systems"][0]["reset"]["reset_types"] if one in kinds
    }


@pytest.mark.parametrize("name", names())
def test_firmware_has_each_installed_component_once(seen, name):
    given = seen[name].facts["firmware_inventory"]
    installed = {id: one for id, one in given.items() if not id.startswith(("Previous-", "Current-"))}
    found = {one.component: (one.version, one.updateable) for one in seen[name].inventory.firmware}
    assert found == {id.rpartition("__")[2]: (one["version"], one["updateable"]) for id, one in installed.items()}


@pytest.mark.parametrize("name", names())
def test_nothing_was_changed_at_the_bmc(seen, name):
    tried = ["POST /redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"]
    assert seen[name].bmc.changes == (tried if name == DELL else [])


@pytest.mark.parametrize("name", names())
def test_the_account_is_an_administrator(seen, name):
    assert (seen[name].login.user, seen[name].login.role) == ("root", "Administrator")
    assert not seen[name].login.missing


def test_a_server_of_dell(seen):
    found, facts = seen[DELL].inventory, seen[DELL].facts
    assert (found.vendor, found.model, found.threads, found.arch) == ("Dell Inc.", "PowerEdge R750", 72, "x86_64")
    assert found.bmc_version == facts["managers"][0]["firmware"]
    assert sorted(nic.name for nic in found.nics) == sorted(facts["systems"][0]["ethernet_interfaces"])
    assert [disk.size_bytes for disk in found.disks] == [1920383410176] * 3
    assert {(disk.protocol, disk.media) for disk in found.disks} == {("NVMe", "SSD")}
    assert [(one.slot, one.cd, one.inserted) for one in seen[DELL].media] == [("1", True, False), ("2", True, False)]
    assert len(seen[DELL].sensors) == 34
    assert [(one.name, one.value) for one in seen[DELL].sensors if one.whole] == [("System Power Control", 614.0)]
    assert [one.id for one in seen[DELL].events] == ["1020", "1021", "1022", "1023", "1024"]
    assert seen[DELL].settings["AesNi"] == "Enabled"


def test_its_gpu_is_the_processor_and_not_the_pcie_device_that_has_only_a_vendor(seen):
    (gpu,) = [one for one in seen[DELL].inventory.devices if one.kind == "gpu"]
    facts = seen[DELL].facts["accelerators"][0]
    assert (gpu.name, gpu.model, gpu.serial) == (facts["id"], facts["model"], facts["serial"])


def test_its_dpu_is_recognized_by_the_serial_number_without_blanks(seen):
    (dpu,) = [one for one in seen[DELL].inventory.devices if one.kind == "dpu"]
    facts = seen[DELL].facts["dpus"][0]
    assert (dpu.name, dpu.model, dpu.serial, dpu.part_number) == (
        facts["network_adapter"], facts["model"], facts["serial"], facts["part_number"]
    )  # fmt: skip


def test_a_dpu(seen):
    found, facts = seen[DPU].inventory, seen[DPU].facts["dpu"]
    assert (found.vendor, found.model) == ("Nvidia", facts["card_model"])
    assert {nic.name: nic.mac for nic in found.nics} == facts["network_device_functions"]
    assert (found.cpus, found.memory_mib, found.arch, found.disks) == (0, 0, "", ())
    assert not any(one.whole for one in seen[DPU].sensors), "it does not measure its power"
    assert found.bmc_version == seen[DPU].facts["firmware_inventory"]["BMC_Firmware"]["version"]
    assert seen[DPU].settings["NicMode"] == facts["bios_NicMode"]
    assert "UefiPassword" not in seen[DPU].settings
    assert seen[DPU].media == []
    assert seen[DPU].secure_boot.mode == facts["secure_boot"]["SecureBootMode"]


def test_a_dpu_that_fetches_firmware_by_scp_only_is_not_sent_an_http_address(seen):
    assert "fetches firmware by SCP, not by HTTP" in seen[DPU].update


def test_members_of_a_list_that_are_not_there_are_named():
    inventory = "/redfish/v1/UpdateService/FirmwareInventory"
    listed = json.loads(tree(DPU)[inventory])
    listed["Members"].append({"@odata.id": f"{inventory}/gone"})
    with captured(DPU, {inventory: listed}) as bmc, opened(bmc) as session:
        found = session.inspect()
    assert len(found.firmware) == 13
    (missing,) = found.missing
    assert f"{inventory}/gone" in missing
