"""Sessions with the BMC of a card: what it says, the password, and the limit on logins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.bluefield import reading
from blueprints.bluefield.access import access_of, opened
from blueprints.bluefield.logins import LONGEST, SHORTEST, new_password, place_of
from blueprints.bmc.errors import (
    BmcBusy,
    BmcCertificateChanged,
    BmcError,
    BmcLoginRefused,
    BmcLoginsSpent,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.redfish import Access
from blueprints.dpu.bluefield_card.config import Config
from blueprints.records.logins import LOST, MOST, SOON, WINDOW, LoginsInMemory
from blueprints.specs import BlueprintView, ResourceView
from tests.bmc.bluefield import ACCOUNT, FACTORY, SERIAL, SESSIONS, THRESHOLD, Bluefield, bluefield, newer, small, whole
from tests.bmc.captured import needed

RIGHT = "A-right.Password7"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture
def bmc() -> Iterator[Bluefield]:
    with bluefield() as running:
        running.set(RIGHT)
        yield running
        assert running.basic == 0, "each request with basic authentication is a login"


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def record(time: Time) -> LoginsInMemory:
    return LoginsInMemory(time)


def card(bmc: Bluefield, record: LoginsInMemory, **access: Any) -> ResourceView:
    """Return the row of a card."""
    blueprint = BlueprintView(id=1, name="cards", kind="bluefield_card", generation=1, config=Config())
    return ResourceView(
        id=1, key="r1", name="card", type="dpu_card", origin="registered", blueprint=blueprint, attributes={},
        capacity=Amounts(slots=1), registration={"serial": SERIAL, "bmc": bmc.access(**access)}, logins=record,
    )  # fmt: skip


def login(password: str) -> dict[str, str]:
    return {"username": "root", "password": password}


def refused(row: ResourceView, password: str = "wrong") -> None:
    with pytest.raises(BmcLoginRefused), opened(row, login(password), 5):
        pass


@pytest.mark.parametrize(
    "made", [small, pytest.param(whole, marks=needed)], ids=["small", "captured"]
)  # fmt: skip
def test_the_traps_of_the_captured_card_are_read_right(made: Callable[[], dict[str, Any]], record):
    with bluefield(made()) as bmc:
        bmc.set(RIGHT)
        with opened(card(bmc, record), login(RIGHT), 30) as session:
            found = session.card()
            assert session.state() == (SERIAL, "ok")
    assert (found.serial, found.part_number) == (SERIAL, "900-9D3B6-00CV-AA0")
    assert (found.product, found.generation) == ("Bluefield 3 SmartNIC Main Card", "BlueField3")
    assert (found.mode, found.psid, found.health) == ("dpu", "MT_0000000884", "ok")
    assert found.protocols == ("SCP",)
    assert {"on", "off", "reset", "shutdown"} <= set(found.resets)
    assert found.firmware["BMC_Firmware"] == "BF-24.07-14"
    assert "golden_image_arm" not in found.firmware
    assert found.system.startswith("DOCA_2.5.0")


def test_newer_firmware_with_missing_members_is_read_as_far_as_it_goes(record):
    with bluefield(newer(small())) as bmc:
        bmc.set(RIGHT)
        with opened(card(bmc, record), login(RIGHT), 30) as session:
            found = session.card()
    assert (found.serial, found.generation) == (SERIAL, "BlueField3"), "by its part number, as Card1 has no model"
    assert (found.mode, found.protocols) == ("nic", ("SCP", "HTTP", "HTTPS"))
    assert found.resets == ("cycle", "reset", "shutdown")
    assert any("Gone" in one for one in found.missing)


def test_a_card_without_bios_chassis_and_inventory_is_still_read(record):
    tree = small()
    for path in list(tree):
        if "/Bios" in path or "/Chassis/" in path or "/FirmwareInventory" in path:
            del tree[path]
    with bluefield(tree) as bmc:
        bmc.set(RIGHT)
        with opened(card(bmc, record), login(RIGHT), 30) as session:
            found = session.card()
    assert (found.serial, found.generation, found.mode, dict(found.firmware)) == (SERIAL, "", "", {})
    assert len(found.missing) >= 3


@pytest.mark.parametrize(
    ("settings", "oem", "mode"),
    [
        ({"NicMode": "DpuMode"}, {"Mode": ""}, "dpu"), ({"Nic Mode": "NicMode"}, {}, "nic"),
        ({}, {"Mode": "NicMode"}, "nic"),
        ({"NicMode": "Unavailable"}, {"Mode": "DpuMode"}, "dpu"), ({"NicMode": 7}, {"Mode": None}, ""), ({}, {}, ""),
    ],
)  # fmt: skip
def test_the_mode_is_found_wherever_it_is(settings, oem, mode):
    assert reading.mode(settings, oem) == mode


def test_attributes_are_found_with_and_without_blanks():
    assert reading.setting({"Host Privilege Level": "Restricted"}, "HostPrivilegeLevel") == "Restricted"
    assert reading.setting({"InternalCPUModel": "Unavailable"}, "Internal CPU Model") is None
    assert reading.setting({"EmmcWipe": False}, "EmmcWipe") is False


def test_generated_passwords_are_what_the_bmc_accepts():
    made = {new_password() for _ in range(200)}
    assert len(made) == 200
    for one in made:
        assert SHORTEST <= len(one) <= LONGEST
        assert all(any(test(c) for c in one) for test in (str.isupper, str.islower, str.isdigit))
        assert any(not c.isalnum() for c in one)


# The limit on logins


def test_no_third_login_is_tried_and_the_bmc_is_not_locked(bmc, record, time):
    row = card(bmc, record)
    refused(row)
    refused(row)
    for _ in range(5):
        with pytest.raises(BmcLoginsSpent) as spent, opened(row, login(RIGHT), 5):
            pass
    assert (len(bmc.logins), bmc.locked) == (MOST, False)
    assert spent.value.retry_after == pytest.approx(WINDOW)
    time.now += WINDOW - 1
    with pytest.raises(BmcLoginsSpent), opened(row, login(RIGHT), 5):
        pass
    time.now += 2
    with opened(row, login(RIGHT), 5):
        pass


def test_an_accepted_login_erases_no_refused_one(bmc, record):
    row = card(bmc, record)
    refused(row)
    for _ in range(3):
        with opened(row, login(RIGHT), 5):
            pass
    refused(row)
    with pytest.raises(BmcLoginsSpent), opened(row, login("wrong"), 5):
        pass
    assert bmc.logins.count("wrong") == 2


def test_another_system_name_address_or_registration_begins_no_new_count(bmc, record):
    refused(card(bmc, record))
    refused(card(bmc, record, system="Bluefield"))
    by_name = card(bmc, record, address="localhost")
    with pytest.raises(BmcLoginsSpent), opened(by_name, login("wrong"), 5):
        pass
    assert len(bmc.logins) == 2
    assert place_of(Access(address="localhost", port=1)) == place_of(Access(address="127.0.0.1", port=1))


def test_the_same_card_at_another_address_begins_no_new_count(bmc, record):
    with bluefield(address="127.0.0.2") as moved:
        refused(card(bmc, record))
        # A server listens on one address only, so the other address is one of another double.
        refused(card(moved, record, address="127.0.0.1"))
        with pytest.raises(BmcLoginsSpent), opened(card(moved, record, address="127.0.0.1"), login("wrong"), 5):
            pass


def test_a_session_that_is_refused_later_counts_and_is_not_opened_again(bmc, record):
    row = card(bmc, record)
    for count in (1, 2):
        with opened(row, login(RIGHT), 5) as session:
            bmc.sessions.clear()
            with pytest.raises(BmcLoginRefused):
                session.state()
        assert len(bmc.logins) == count, "no second login within a session"
    with pytest.raises(BmcLoginsSpent), opened(row, login(RIGHT), 5):
        pass


def test_a_lack_of_privileges_is_no_refused_login(bmc, record):
    row = card(bmc, record)
    bmc.answers = [(r"GET /redfish/v1/Systems.*", "403 Forbidden")]
    for _ in range(MOST + 2):
        with opened(row, login(RIGHT), 5) as session, pytest.raises(BmcRefused):
            session.state()


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "500 Internal Server Error", "403 Forbidden", "401 Unauthorized"]
)
def test_basic_authentication_is_never_used_and_an_unclear_refusal_counts(bmc, record, status):
    row = card(bmc, record)
    bmc.answers = [(f"POST {SESSIONS}", status)]
    for _ in range(MOST):
        with pytest.raises(BmcError), opened(row, login(RIGHT), 5):
            pass
    with pytest.raises(BmcLoginsSpent), opened(row, login(RIGHT), 5):
        pass


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "503 Service Unavailable"])
def test_a_bmc_that_judges_no_password_is_not_counted(bmc, record, status):
    row = card(bmc, record)
    bmc.answers = [(f"POST {SESSIONS}", status)]
    for _ in range(MOST + 2):
        with pytest.raises(BmcError) as error, opened(row, login(RIGHT), 5):
            pass
        assert not isinstance(error.value, BmcLoginsSpent)


def test_a_login_whose_answer_is_lost_counts_as_refused(bmc, record, time):
    row = card(bmc, record)
    bmc.lose = f"POST {SESSIONS}"
    for _ in range(MOST):
        with pytest.raises(BmcUnreachable), opened(row, login("wrong"), 5):
            pass
    bmc.lose = ""
    with pytest.raises(BmcLoginsSpent) as spent, opened(row, login(RIGHT), 5):
        pass
    assert spent.value.retry_after == SOON, "it might still be under way"
    time.now += LOST + 1
    with pytest.raises(BmcBusy) as spent, opened(row, login(RIGHT), 5):
        pass
    assert spent.value.retry_after == pytest.approx(WINDOW - LOST - 1)


def test_a_bmc_that_cannot_be_reached_costs_no_login(bmc, record):
    row = card(bmc, record)
    bmc.silent = True
    for _ in range(MOST + 2):
        with pytest.raises(BmcUnreachable), opened(row, login(RIGHT), 5):
            pass
    bmc.silent = False
    with opened(row, login(RIGHT), 5):
        pass


def test_the_double_locks_the_account_after_four_refusals(bmc):
    row = card(bmc, LoginsInMemory())
    for _ in range(THRESHOLD):
        refused(card(bmc, LoginsInMemory()))
    refused(row, RIGHT)


def test_nothing_is_sent_to_a_bmc_with_another_certificate(bmc, record):
    bmc.calls.clear()
    with pytest.raises(BmcCertificateChanged), opened(card(bmc, record, fingerprint="a" * 64), login(RIGHT), 5):
        pass
    assert not bmc.calls


def test_an_authority_is_trusted_in_place_of_a_pin(bmc, record):
    with opened(card(bmc, record, fingerprint="", ca=bmc.ca), login(RIGHT), 5) as session:
        assert session.state()[0] == SERIAL


def test_a_confirmed_certificate_counts_only_for_its_bmc(bmc, record):
    row = card(bmc, record, fingerprint="")
    row.facts["bmc_pin"] = {"bmc": f"127.0.0.1:{bmc.port}", "sha256": bmc.fingerprint}
    assert access_of(row).fingerprint == bmc.fingerprint
    row.facts["bmc_pin"] = {"bmc": "127.0.0.1:1", "sha256": bmc.fingerprint}
    assert access_of(row).fingerprint == ""


# The password


def test_a_session_that_may_only_change_the_password_changes_it(record):
    new = new_password()
    with bluefield() as bmc:
        with opened(card(bmc, record), login(FACTORY), 5) as session:
            assert session.must_change_password
            with pytest.raises(BmcRefused):
                session.state()
            session.set_password(new)
        with opened(card(bmc, record), login(new), 5) as session:
            assert not session.must_change_password
            assert session.state()[0] == SERIAL
        assert f"PATCH {ACCOUNT}" in bmc.calls
        assert not bmc.sessions


def test_a_password_that_the_bmc_does_not_accept_is_in_no_message(bmc, record):
    with opened(card(bmc, record), login(RIGHT), 5) as session, pytest.raises(BmcRefused) as error:
        session.set_password("secret7")
    assert "secret7" not in str(error.value)
