"""What `misc` of an rshim says: settings, and the log that decides about an installation. Pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blueprints.answers import Scope
from blueprints.bluefield import rshim
from tests.bluefield.rshim import INSTALLED, STALE

MISC = """DISPLAY_LEVEL   2 (0:basic, 1:advanced, 2:log)
BF_MODE         DPU mode
BOOT_MODE       1 (0:rshim, 1:emmc, 2:emmc-boot-swap)
DROP_MODE       0 (0:normal, 1:drop)
DEV_NAME        pcie-0000:e1:00.2
DEV_INFO        BlueField-3(Rev 1)
OPN_STR         9009D3B400ENEA
SECURE_NIC_MODE 0 (0:no, 1:yes)
FORCE_CMD       0 (1: send Force command)
---------------------------------------
             Log Messages
---------------------------------------
 INFO[MISC]: : DPU is ready
"""


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


def test_the_settings_are_read():
    assert rshim.device(MISC) == rshim.Device(
        dropped=False, locked=False, boot_mode=1, mode="dpu", generation="BlueField3", part_number="9009D3B400ENEA",
        name="pcie-0000:e1:00.2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "name", "value"),
    [
        ("DROP_MODE       0", "DROP_MODE       1", "dropped", True),
        ("DROP_MODE       0 (0:normal, 1:drop)\n", "", "dropped", None),
        ("SECURE_NIC_MODE 0", "SECURE_NIC_MODE 1", "locked", True), ("DPU mode", "NIC mode", "mode", "nic"),
        ("DPU mode", "Unknown", "mode", ""), ("9009D3B400ENEA", "N/A", "part_number", ""),
        ("BlueField-3(Rev 1)", "BlueField-2(Rev 0)", "generation", "BlueField2"),
    ],
)  # fmt: skip
def test_other_settings_are_read(before, after, name, value):
    assert before in MISC
    found = rshim.device(MISC.replace(before, after))
    assert getattr(found, name) == value


@pytest.mark.parametrize("said", ["", "\n", "cat: misc: Input/output error", "<html>", "BOOT_MODE 0"])
def test_no_settings_are_no_device(said):
    assert rshim.device(said) is None


@given(st.text(max_size=500))
def test_garbage_is_read_without_an_error(said):
    rshim.device(said)
    assert rshim.judge(said).state in ("running", "ready", "failed")


def test_an_installation_is_ready_at_its_last_line_and_not_when_linux_is_up():
    log = (*STALE, rshim.SENT, *INSTALLED)
    for count in range(len(log)):
        assert rshim.judge("\n".join(log[:count])).state == "running", "the system before was ready, and not this one"
    assert rshim.judge("\n".join(log)).state == "ready"
    assert rshim.judge("\n".join(INSTALLED[:10])).percent == 78


@pytest.mark.parametrize(
    ("line", "code", "scope"),
    [
        ("ERR[MISC]: CRITICAL ERROR: eMMC not found", "flash_failed", Scope.OFFER),
        ("INFO[MISC]: In Enhanced NIC mode", "nic_mode", Scope.OFFER),
        ("ERR[BL1]: PSC error -60", "flash_failed", Scope.OFFER),
        ("ERR[MISC]: ERR Installation failed", "flash_failed", Scope.OFFER),
        ("ERR[BL2]: INTEGRITY_FAIL", "image_for_other_card", Scope.BLUEPRINT),
        ("cat: write error: Connection timed out", "stream_failed", Scope.OFFER),
    ],
)
def test_a_failure_decides_also_if_the_former_system_starts_after_it(line, code, scope):
    for log in ("\n".join([*INSTALLED[:8], line]), "\n".join([*INSTALLED[:8], line, *INSTALLED[-2:]])):
        found = rshim.judge(log)
        assert found.state == "failed"
        assert found.meaning is not None
        assert (found.meaning.code, found.meaning.scope) == (code, scope)
        assert line in found.meaning.sentence, "the line of the card is shown"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("9009D3B400ENEA", "900-9D3B4-00EN-EA0", True), ("", "900-9D3B4-00EN-EA0", True), ("N", "", True),
        ("9009D3B600CVAA", "900-9D3B4-00EN-EA0", False),
    ],
)  # fmt: skip
def test_part_numbers_are_compared_as_rshim_writes_them(one, other, same):
    assert rshim.same_part(one, other) is same
