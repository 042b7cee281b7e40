"""`drydock hardware`: what this machine has, without a database, and what hosts have, as last reported."""

from __future__ import annotations

import json

import pytest

from drydock.demo import captured
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


@pytest.fixture
def cards(cli, host, tmp_path):
    """A blueprint that finds captured devices in this machine, and a lease on one of them."""
    captured.write(tmp_path / "captured")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    cli("lease", host, "--ttl", "10m", "--", "true")
    cli("blueprints", "add", "hw-cards", "accelerators", f"captured={tmp_path / 'captured'}", 'blueprints=["this"]')
    try:
        asked = ("accelerator", "-r", "class=gpu", "--keep", "--ttl", "10m", "--wait", "90s")
        (lease,) = cli.json("lease", *asked)["leases"]
        yield lease["id"]
        cli("release", str(lease["id"]))
        cli("sweep")
    finally:
        cli("blueprints", "disable", "hw-cards")
        for one in cli.json("resources", "list", "--blueprint", "hw-cards"):
            cli("resources", "retire", str(one["id"]))
        cli("sweep")


@pytest.mark.slow
def test_the_hardware_of_a_host_is_listed_shown_and_scanned_again(cli, cards):
    (listed,) = cli.json("hardware", "list", "--blueprint", "hw-cards")
    assert listed["counts"]["gpu"] == {"ready": 1, "setup_required": 1}
    name, id = listed["name"], str(listed["host"])
    (row,) = [one for one in cli("hardware", "list").stdout.splitlines() if "hw-cards" in one]
    assert "1 of 2 gpu" in row
    shown = cli("hardware", "show", name, "--blueprint", "hw-cards")
    rows = {line.split()[0]: line for line in shown.stdout.splitlines()[1:]}
    assert "(active)" in rows[captured.GPU]
    assert str(cards) in rows[captured.GPU]
    assert "setup_required" in rows[captured.UNREADY]
    assert "Computing needs nvidia." in rows[captured.UNREADY]
    assert "only drives a display" in shown.stdout
    assert "This is a captured tree." in shown.stderr
    device = cli("hardware", "show", id, captured.GPU, "--blueprint", "hw-cards").stdout
    assert "Tesla P100" in device
    assert captured.UUID in device
    assert cli.json("hardware", "show", id, captured.UNREADY)["readiness"] == "setup_required"
    asked = cli.json("hardware", "scan", id)
    assert (asked["by"], asked["report"]) == ("discovery", listed["id"])
    assert captured.GPU in cli("hardware", "scan", id, "--wait").stdout
    (after,) = cli.json("hardware", "list", "--host", id)
    assert after["reported_at"] > listed["reported_at"]


def test_mistakes_about_hosts_are_told(cli):
    assert "No hardware of host 'nowhere'" in cli("hardware", "show", "nowhere", code=3).stderr
    assert "No hardware of host 'nowhere'" in cli("hardware", "scan", "nowhere", code=3).stderr
    assert "need a host" in cli("hardware", "scan", "--wait", code=2).stderr
    assert "Leave out the host" in cli("hardware", "show", "nowhere", "--root", "/tmp", code=2).stderr
