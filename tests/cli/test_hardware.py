"""`drydock hardware`: it needs no database, and says what is ready and what is not and why."""

from __future__ import annotations

import json

import pytest

from tests.agent.hand import Hand, gpu_xml


@pytest.fixture
def root(tmp_path):
    hand = Hand()
    hand.function("0000:00:1f.0", "8086:2918", "060100")
    hand.function("0000:01:00.0", "10de:20b2", "030200", "nvidia")
    hand.function("0000:02:00.0", "8086:4940", "0b4000")
    hand.function("0000:03:00.0", "1a03:2000", "030000", "ast")
    hand.tool("nvidia-smi", "GPU 0 has \x1b[31mbad memory\n" + gpu_xml(remap="Yes"))
    hand.write(tmp_path)
    return str(tmp_path)


def test_a_scan_says_what_is_ready_and_what_is_not_and_why(cli, root):
    done = cli("hardware", "scan", "--root", root)
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert list(rows) == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert "reboot_required  A memory row waits to be remapped" in rows["0000:01:00.0"]
    assert "setup_required   No kernel driver is bound to the device." in rows["0000:02:00.0"]
    assert "not leased       The device only drives a display" in rows["0000:03:00.0"]
    assert (
        "0 of 2 accelerators and parts are ready. --all shows 1 other functions. This is a captured tree."
        in done.stderr
    )
    assert "0000:00:1f.0" in cli("hardware", "scan", "--root", root, "--all").stdout


def test_the_json_form_is_that_of_the_agent(cli, root):
    document = json.loads(cli("hardware", "scan", "--root", root, "--json").stdout)
    assert (document["version"], document["traits"], len(document["devices"])) == (1, ["captured"], 4)


def test_one_device_is_shown_in_full(cli, root):
    shown = cli("hardware", "show", "00000000:01:00.0", "--root", root).stdout
    for words in ("NVIDIA A100-SXM4-80GB", "80.0 GiB", "reboot_required", "/dev/nvidia1", "10de:20b2", "serial"):
        assert words in shown
    device = json.loads(cli("hardware", "show", "0000:01:00.0", "--root", root, "--json").stdout)
    assert (device["id"], device["readiness"]) == ("0000:01:00.0", "reboot_required")


def test_mistakes_are_told_with_their_exit_codes(cli, root, tmp_path):
    cli("hardware", "show", "0000:99:00.0", "--root", root, code=3)
    (tmp_path / "empty").mkdir()
    done = cli("hardware", "scan", "--root", str(tmp_path / "empty"), code=2)
    assert "is not a captured tree" in done.stderr


def test_this_machine_is_scanned(cli):
    document = json.loads(cli("hardware", "scan", "--json").stdout)
    assert document["host"]["cpu"]["threads"] >= 1
    assert "traits" not in document
