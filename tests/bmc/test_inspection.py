"""From resources to an inventory: what vendors write differently, and what none should."""

from __future__ import annotations

import datetime as dt

import pytest

from blueprints.bmc.inspection import Resources, component, firmware, flat, inventory, text, whole
from blueprints.bmc.redfish_readings import entry, log_rank, newest, task, when
from blueprints.bmc.values import BmcTask, Device

SYSTEM = {"@odata.id": "/redfish/v1/Systems/1"}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("MT2328XZ185R            ", "MT2328XZ185R"), (" a  b ", "a b"), ("N/A", ""), ("To be filled by O.E.M.", ""),
        ("", ""), (None, ""), (5, ""), (["a"], ""), ("null", ""), ("De\0ll\x1b[2J\u202e", r"De\x00ll\x1b[2J\u202e"),
        ("x" * 5_000_000, "x" * 300 + "…"),
    ],
)  # fmt: skip
def test_texts_lose_padding_and_placeholders(given, plain):
    assert text(given) == plain


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (5, 5),
        ("36", 36),
        (5.9, 5),
        (True, None),
        (-1, None),
        (float("nan"), None),
        ("x", None),
        ("\u00b2", None),
        ("9" * 5000, None),
        (1e300, None),
        (None, None),
        ([], None),
    ],
)
def test_numbers_are_whole_and_not_negative(given, number):
    assert whole(given) == number


@pytest.mark.parametrize(
    ("given", "values"), [(["a", "b"], ["a", "b"]), ([["SCP"]], ["SCP"]), ("a", ["a"]), (None, []), ([5, {}], [])]
)
def test_allowed_values_may_be_nested(given, values):
    assert flat(given) == values


@pytest.mark.parametrize(
    ("id", "version", "name"),
    [
        ("Installed-159-1.8.2__BIOS.Setup.1-1", "1.8.2", "BIOS.Setup.1-1"),
        ("Installed-0-2.1.3__Disk.Bay.0:Enclosure.Internal.0-1", "2.1.3", "Disk.Bay.0:Enclosure.Internal.0-1"),
        ("BMC_Firmware", "BF-24.07-14", "BMC_Firmware"),
        ("bmc-2.12.0-rev1", "2.12.0", "bmc-rev1"),
        ("BIOS_1.4", "1.4", "BIOS"),
    ],
)
def test_components_keep_their_names_when_the_version_changes(id, version, name):
    assert component({"Id": id, "Version": version, "Name": "A name"}) == (name, True)


def test_a_component_that_is_only_numbered_has_its_title():
    assert component({"Id": "7", "Name": "System ROM", "Version": "U30 v2.6"}) == ("System ROM", True)


def test_images_that_could_be_installed_are_not_installed():
    given = [
        {"Id": "Previous-159-1.2.4__BIOS.Setup.1-1", "Version": "1.2.4"},
        {"Id": "Installed-159-1.8.2__BIOS.Setup.1-1", "Version": "1.8.2", "Updateable": True},
        {"Id": "Current-159-1.8.2__BIOS.Setup.1-1", "Version": "1.8.2"},
    ]
    assert [(one.component, one.version, one.updateable) for one in firmware(given)] == [
        ("BIOS.Setup.1-1", "1.8.2", True)
    ]  # fmt: skip


def test_a_machine_of_which_nothing_is_known_has_an_inventory():
    found = inventory(Resources(system={}, root={}))
    assert (found.vendor, found.cpus, found.memory_mib, found.identities, found.nics) == ("", None, None, (), ())


def test_the_model_may_be_that_of_the_chassis_and_not_of_a_component():
    link = {"Links": {"ComputerSystems": [{"@odata.id": SYSTEM["@odata.id"]}]}}
    board = {**link, "ChassisType": "Component", "Model": "BMC board"}
    card = {**link, "ChassisType": "Card", "Model": "Card 3"}
    other = {"ChassisType": "RackMount", "Model": "Another machine"}
    assert inventory(Resources(system=SYSTEM, root={}, chassis=(other, board, card))).model == "Card 3"


def test_the_bmc_of_several_systems_identifies_none_of_them():
    both = {"Links": {"ManagerForServers": [{"@odata.id": "/1"}, {"@odata.id": "/2"}]}}
    uuid = {"UUID": "ace79559-b47c-419e-a99c-53f635051aa2"}
    assert not inventory(Resources(system=SYSTEM, root=uuid, managers=(both,))).identities
    assert inventory(Resources(system=SYSTEM, root=uuid)).identities


def test_placeholders_identify_nothing():
    system = {
        "Manufacturer": "Acme",
        "SerialNumber": "To Be Filled By O.E.M.",
        "UUID": "00000000-0000-0000-0000-000000000000",
    }
    interface = {"@odata.id": "/1", "MACAddress": "00:00:00:00:00:00"}
    assert not inventory(Resources(system=system, root={}, interfaces=(interface,))).identities


def test_absent_processors_and_disks_do_not_count():
    absent = {"Status": {"State": "Absent"}, "ProcessorType": "GPU"}
    cpu = {"ProcessorType": "CPU", "TotalThreads": 8, "InstructionSet": "ARM-A64"}
    found = inventory(Resources(system=SYSTEM, root={}, processors=(absent, cpu), drives=(absent,)))
    assert (found.cpus, found.threads, found.arch, found.devices, found.disks) == (1, 8, "arm64", (), ())


def test_processors_that_are_no_cpus_are_devices():
    fpga = {"@odata.id": "/p/F1", "ProcessorType": "FPGA", "Manufacturer": "AMD ", "SerialNumber": "X1"}
    dsp = {"@odata.id": "/p/D1", "ProcessorType": "DSP"}
    found = inventory(Resources(system=SYSTEM, root={}, processors=(fpga, dsp)))
    assert found.devices == (
        Device(kind="fpga", name="F1", vendor="AMD", serial="X1"), Device(kind="other", name="D1")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "time"),
    [
        ("2024-06-11T00:13:00-05:00", dt.datetime(2024, 6, 11, 5, 13, tzinfo=dt.UTC)),
        ("2024-06-11T00:13:00", dt.datetime(2024, 6, 11, 0, 13, tzinfo=dt.UTC)),
        ("2024-06-11T00:13:00Z", dt.datetime(2024, 6, 11, 0, 13, tzinfo=dt.UTC)),
        ("0000-00-00T00:00:00Z", None), ("yesterday", None), (None, None), (5, None),
    ],
)  # fmt: skip
def test_times_may_lack_a_zone_or_be_none(given, time):
    assert when(given) == time


def test_entries_without_times_are_ordered_by_number():
    found = newest(
        [entry({"Id": str(n), "Message": "m"}) for n in (10, 9, 8)], dt.datetime(2026, 1, 1, tzinfo=dt.UTC), 2
    )
    assert [one.id for one in found] == ["9", "10"]


@pytest.mark.parametrize(
    ("service", "rank"),
    [
        ({"Id": "Sel", "LogEntryType": "SEL"}, 0), ({"Id": "SEL"}, 1), ({"Id": "IML"}, 2), ({"Id": "EventLog"}, 3),
        ({"Id": "Journal"}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_event_log_is_chosen_among_logs(service, rank):
    assert log_rank(service) == rank


@pytest.mark.parametrize(
    ("body", "status", "state"),
    [
        ({"TaskState": "Running"}, 200, "running"), ({"TaskState": "Suspended"}, 200, "running"),
        ({"TaskState": "Completed"}, 202, "done"), ({"TaskState": "Exception"}, 200, "failed"),
        ({"TaskState": "Completed", "TaskStatus": "Critical"}, 200, "failed"), ({}, 202, "running"), ({}, 204, "done"),
        ({"TaskState": 5, "PercentComplete": "x", "Messages": "x"}, 202, "running"),
    ],
)  # fmt: skip
def test_tasks_go_on_until_they_say_otherwise(body, status, state):
    assert task(body, "/t/1", status).state == state


def test_a_percentage_is_at_most_100():
    assert task({"TaskState": "Running", "PercentComplete": 250}, "/t/1", 200) == BmcTask(
        id="/t/1", state="running", percent=100
    )
