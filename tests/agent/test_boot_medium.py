"""The ramdisk's side of the second medium: what it installs, and what it refuses before it changes anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drydock_agent import boot_medium
from drydock_agent.boot_medium import BadMedium, Network
from interfaces.keys import new_key_pair

PAIR, CONTROL = new_key_pair("ramdisk"), new_key_pair("control")


def settings(**changes: object) -> dict[str, object]:
    return {
        "version": 1, "boot": "0123456789abcdef", "secret": "s" * 32, "host_key": PAIR.private,
        "authorized_keys": [CONTROL.public], "hostname": "dd-1-r7", "network": {"dhcp": True}, **changes,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "medium").mkdir()
    (tmp_path / "root/etc/ssh").mkdir(parents=True)
    return tmp_path


def put(folder: Path, document: object) -> Path:
    (folder / "medium/boot.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return folder / "medium"


def run(folder: Path, *words: str) -> tuple[int, dict]:
    done = subprocess.run(
        [sys.executable, "-m", "drydock_agent.program", "boot", *words, "--root", str(folder / "root")],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[2], timeout=60,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_a_medium_is_installed_and_shown(folder):
    root = folder / "root"
    (root / "etc/ssh/ssh_host_rsa_key").write_text("the key of the image")
    medium = put(folder, settings())
    assert run(folder, "apply", str(medium)) == (0, {"boot": "0123456789abcdef"})
    assert run(folder, "show") == (0, {"boot": "0123456789abcdef", "secret": "s" * 32})
    assert [one.name for one in (root / "etc/ssh").iterdir()] == ["ssh_host_ed25519_key"]
    assert (root / "etc/ssh/ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    assert (root / "root/.ssh/authorized_keys").read_text() == CONTROL.public + "\n"
    assert (root / "root/.ssh").stat().st_mode & 0o777 == 0o700
    assert (root / "etc/hostname").read_text() == "dd-1-r7\n"
    assert "DHCP=yes" in (root / "run/systemd/network/10-drydock.network").read_text()
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", root / "etc/ssh/ssh_host_ed25519_key"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[:2] == PAIR.public.split()[:2]
    boot_medium.apply(put(folder, settings(boot="another")), root)
    assert boot_medium.shown(root)["boot"] == "another", "a second medium replaces the first"


def test_a_machine_without_a_medium_says_so(folder):
    code, said = run(folder, "show")
    assert (code, said["error"]["message"]) == (1, "This machine was booted without a medium of Drydock.")
    code, said = run(folder, "apply", str(folder / "medium"))
    assert code == 1
    assert "boot.json cannot be read: No such file or directory" in said["error"]["message"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("not json", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        (settings(version=2), "has version 2; this agent reads 1"),
        (settings(host_key="-----BEGIN OPENSSH PRIVATE KEY-----\n$(reboot)"), "host_key cannot be used"),
        (settings(authorized_keys=[]), "authorized_keys cannot be used"),
        (settings(authorized_keys=["ssh-ed25519 AAAA\nssh-ed25519 BBBB"]), "authorized_keys cannot be used"),
        (settings(hostname="a/../b"), "hostname cannot be used"),
        (settings(network={"address": "10.0.0.7/24\nDNS=10.0.0.9"}), "network"),
        (settings(network={"address": "10.0.0.7/24", "gateway": "gw"}), "network"),
        (settings(network={"dhcp": True, "mac": "x\nDHCP=no"}), "network.mac cannot be used"),
        (settings(extra=1), "extra"),
        (" " * (1 << 20) + "{}", "has more than 1048576 bytes"),
    ],
)
def test_a_bad_medium_changes_nothing(folder, document, said):
    key = folder / "root/etc/ssh/ssh_host_rsa_key"
    key.write_text("the key of the image")
    with pytest.raises(BadMedium) as caught:
        boot_medium.apply(put(folder, document), folder / "root")
    assert said in str(caught.value)
    assert PAIR.private[40:80] not in str(caught.value)
    assert [one.name for one in (folder / "root/etc/ssh").iterdir()] == ["ssh_host_rsa_key"]


def test_a_static_network_names_its_port_and_servers():
    text = boot_medium.network_file(
        Network(address="10.0.0.7/24", gateway="10.0.0.1", dns=("10.0.0.2", "10.0.0.3"), mac="52:54:00:12:34:56")
    )
    assert text.splitlines() == [
        "[Match]", "MACAddress=52:54:00:12:34:56", "", "[Network]", "Address=10.0.0.7/24", "Gateway=10.0.0.1",
        "DNS=10.0.0.2", "DNS=10.0.0.3",
    ]  # fmt: skip
