"""BFB images, bf.cfg, and what the messages of a BMC mean. Pure functions."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from blueprints.answers import Scope
from blueprints.bluefield import bfb
from blueprints.bluefield.bfcfg import LARGEST, LONGEST, MOST, bf_cfg, check_parameters
from blueprints.bluefield.messages import meaning
from blueprints.dpu.bluefield.finishing import reported
from tests.bmc.flashing import installer

WHOLE = bfb.component(29, b"BlueField3") + bfb.component(62, bytes(range(200)))


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


def read(content: bytes, size: int = 1 << 20) -> bfb.Reading:
    found = bfb.Reading()
    for at in range(0, len(content), size):
        found = bfb.Reading.stored(bfb.read_on(found, content[at : at + size]).to_json())
    return found


@pytest.mark.parametrize("size", [1, 7, 24, 4096])
def test_an_image_is_read_in_parts_of_any_size_and_what_follows_it_is_not_checked(size):
    found = read(WHOLE + b"ubuntu_PASSWORD='x'\n", size)
    bfb.check_whole(found)
    assert (found.components, found.ended) == (2, True)
    bfb.check_whole(read(WHOLE, size))


def test_every_change_of_a_byte_is_found():
    bounds = {*range(4), *range(24, 40), *range(64, len(WHOLE))}
    for at in sorted(bounds):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 0x40
        with pytest.raises(bfb.NotBfb):
            bfb.check_whole(read(bytes(damaged)))


@pytest.mark.parametrize("end", [0, 3, 23, 24, 30, 41, len(WHOLE) - 1])
def test_an_image_that_is_cut_off_is_not_whole(end):
    with pytest.raises(bfb.NotBfb):
        bfb.check_whole(read(WHOLE[:end]))


@pytest.mark.parametrize("content", [b"<!doctype html><title>404</title>", bytes(64), b"Bf\x02\x13" + bytes(60)])
def test_other_files_are_no_bfb(content):
    with pytest.raises(bfb.NotBfb):
        read(content)


def test_the_installer_reads_from_bf_cfg_what_was_put_into_it():
    user_data = '#cloud-config\n{"runcmd": ["echo \'a\' $HOME `id` \\\\ %s"]}'
    made = bf_cfg(parameters={"A": "it's $(id)"}, password_hash="$6$x$y", user_data=user_data, name="dpu-1")
    assert installer(made)["user-data"] == user_data
    said = subprocess.run(
        ["bash", "-s"], input=made + b'printf "%s|%s" "$A" "$ubuntu_PASSWORD"', capture_output=True, check=True
    )
    assert said.stdout == b"it's $(id)|$6$x$y"
    assert b"ubuntu_PASSWORD='*'" in bf_cfg(parameters={}, password_hash="", user_data="", name="d")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"A": "x" * (LONGEST + 1)}, f"A has {LONGEST + 1} characters; at most {LONGEST}"),
        ({f"A{n}": "" for n in range(MOST + 1)}, f"at most {MOST} parameters"),
        ({"a b": "1"}, "not the name of a variable"), ({"BMC_PASSWORD": "x"}, "BMC_PASSWORD is a secret"),
        ({"PATH": "/"}, "PATH must not be set"), ({"A": "1\nrm -rf /"}, "A contains line breaks"),
    ],
)  # fmt: skip
def test_parameters_above_the_limits_are_refused_by_name(given, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        check_parameters(given)


def test_a_bf_cfg_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match=f"at most {LARGEST}"):
        bf_cfg(parameters={}, password_hash="", user_data="x" * LARGEST, name="d")


@pytest.mark.parametrize(
    ("said", "outcome", "code", "scope"),
    [
        ("Component image is identical.", "identical", "flash_failed", Scope.OFFER),
        ("Wait for background copy  operation to complete", "later", "flash_failed", Scope.OFFER),
        (
            "Please provide server's public key using PublicKeyExchange", "failed", "public_key_missing",
            Scope.OPERATOR,
        ),
        ("Check and restart server's web service", "failed", "web_unreachable", Scope.OFFER),
        ("Invalid FW Package", "failed", "image_for_other_card", Scope.BLUEPRINT),
        ("Something else", "failed", "flash_failed", Scope.OFFER), ("", "failed", "flash_failed", Scope.OFFER),
    ],
)  # fmt: skip
def test_each_message_has_a_meaning(said, outcome, code, scope):
    found = meaning(said)
    assert (found.outcome, found.code, found.scope) == (outcome, code, scope)
    assert found.sentence


def test_the_restart_that_the_firmware_reports_is_used_and_without_a_report_the_strongest():
    lines = {
        3: "3: Driver restart and PCI reset", 4: "4: Warm Reboot", 5: "5: Cold Reboot",
    }  # fmt: skip
    for supported in itertools.product([True, False], repeat=3):
        said = "\n".join(
            f"{line}  -{'Supported' if yes else 'Not Supported'}"
            for line, yes in zip(lines.values(), supported, strict=True)
        )
        wanted = "reboot" if supported[0] or supported[1] else "power_cycle"
        assert reported(said) == wanted, said
    assert reported("") == "power_cycle"
