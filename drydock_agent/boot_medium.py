"""The second medium of a boot of the ramdisk: keys, secret and network of this machine, installed before sshd starts.

Drydock writes the file `boot.json` on a medium with the label DRYDOCK. `drydock-agent boot apply` reads it at boot, and
`drydock-agent boot show` prints afterwards which boot this is, which Drydock compares with what it wrote.
"""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock_agent import wire
from drydock_agent.program.state import create

LABEL = "DRYDOCK"
FILE = "boot.json"
VERSION = 1
_LARGEST = 1 << 20
_STATE = "run/drydock-agent/boot.json"
_HOST_KEY, _KEYS = "etc/ssh/ssh_host_ed25519_key", "root/.ssh/authorized_keys"
_NETWORK = "run/systemd/network/10-drydock.network"
_KEY_LINE = re.compile(r"[a-z0-9@.-]{1,60} [A-Za-z0-9+/=]{1,20000}( [^\r\n\0]{0,200})?")
_PRIVATE = re.compile(
    r"-----BEGIN OPENSSH PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END OPENSSH PRIVATE KEY-----\n?", re.ASCII
)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class BadMedium(Exception):
    """The medium is missing, or cannot be used."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """The network of the machine: by DHCP, or a static address with prefix."""

    dhcp: bool = False
    address: str = ""
    gateway: str = ""
    dns: tuple[str, ...] = ()
    mac: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boot:
    """The settings of one boot."""

    version: int
    boot: str
    secret: str = dataclasses.field(repr=False)
    host_key: str = dataclasses.field(repr=False)
    authorized_keys: tuple[str, ...]
    hostname: str = "ramdisk"
    network: Network = Network(dhcp=True)


def read(folder: Path) -> Boot:
    """Read the settings on a mounted medium. Raises BadMedium, which says what is wrong."""
    try:
        with open(folder / FILE, "rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as error:
        raise BadMedium(f"{folder / FILE} cannot be read: {error.strerror}.") from None
    if len(content) > _LARGEST:
        raise BadMedium(f"{FILE} has more than {_LARGEST} bytes.")
    try:
        document = wire.parsed(content)
        if not isinstance(document, Mapping):
            raise BadMedium(f"{FILE} is not a JSON object.")
        if document.get("version") != VERSION:
            raise BadMedium(f"{FILE} has version {str(document.get('version'))[:20]}; this agent reads {VERSION}.")
        wire.measure(document, 5000)
        found = wire.value(Boot, document)
    except wire.Malformed as error:
        raise BadMedium(f"{FILE}: {str(error)[:300]}.") from None
    _check(found)
    return found


def _check(found: Boot) -> None:
    wrong = {
        "boot": not _TOKEN.fullmatch(found.boot),
        "secret": not _TOKEN.fullmatch(found.secret),
        "hostname": not _NAME.fullmatch(found.hostname),
        "host_key": not _PRIVATE.fullmatch(found.host_key),
        "authorized_keys": not found.authorized_keys or not all(map(_KEY_LINE.fullmatch, found.authorized_keys)),
        "network.mac": bool(found.network.mac) and not _MAC.fullmatch(found.network.mac),
    }
    if fields := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise BadMedium(f"{FILE}: {', '.join(fields)} cannot be used.")
    _check_network(found.network)


def _check_network(network: Network) -> None:
    try:
        if not network.dhcp:
            ipaddress.ip_interface(network.address)
        for one in (network.gateway, *network.dns):
            if one:
                ipaddress.ip_address(one)
    except ValueError as error:
        raise BadMedium(f"{FILE}: network: {error}.") from None


def network_file(network: Network) -> str:
    """Return the configuration for systemd-networkd."""
    match = [f"MACAddress={network.mac}"] if network.mac else ["Type=ether", "Kind=!*"]
    if network.dhcp:
        lines = ["DHCP=yes"]
    else:
        named = [("Address", network.address), ("Gateway", network.gateway), *(("DNS", one) for one in network.dns)]
        lines = [f"{name}={value}" for name, value in named if value]
    return "\n".join(["[Match]", *match, "", "[Network]", *lines, ""])


def apply(folder: Path, root: Path) -> None:
    """Install the settings on a medium below `root`. Raises BadMedium, before anything is changed."""
    found = read(folder)
    for old in sorted((root / "etc/ssh").glob("ssh_host_*")):
        old.unlink()
    _write(root / _HOST_KEY, found.host_key.rstrip("\n") + "\n", 0o600)
    _write(root / _KEYS, "".join(f"{line}\n" for line in found.authorized_keys), 0o600)
    _write(root / _NETWORK, network_file(found.network), 0o644)
    _write(root / "etc/hostname", f"{found.hostname}\n", 0o644)
    _write(root / _STATE, json.dumps({"boot": found.boot, "secret": found.secret}), 0o600)


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(mode=0o700 if path.parent.name == ".ssh" else 0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    create(path, text.encode())
    os.chmod(path, mode)


def shown(root: Path) -> dict[str, str]:
    """Return the boot that was applied, and its secret. Raises BadMedium if there is none."""
    try:
        document = json.loads((root / _STATE).read_text())
    except (OSError, ValueError):
        raise BadMedium("This machine was booted without a medium of Drydock.") from None
    return {"boot": str(document["boot"]), "secret": str(document["secret"])}


def add_commands(commands: Any) -> None:
    """Add `boot apply` and `boot show` to the commands of the program."""
    about = "Install or show the settings of this boot of the ramdisk. Prints JSON."
    parser = commands.add_parser("boot", help=about, description=about)
    below = parser.add_subparsers(required=True, metavar="COMMAND")
    applying = below.add_parser("apply", help="Install the settings on a mounted medium.")
    applying.add_argument("folder", metavar="FOLDER", help=f"Where the medium with the label {LABEL} is mounted.")
    applying.set_defaults(command=lambda given: _printed(_apply, given))
    showing = below.add_parser("show", help="Print which boot this is, and its secret.")
    showing.set_defaults(command=lambda given: _printed(_show, given))
    for one in (applying, showing):
        one.add_argument("--root", metavar="FOLDER", default="/", help="Folder that stands for a machine, for tests.")


def _printed(function: Any, given: argparse.Namespace) -> int:
    try:
        print(json.dumps(function(given)))
    except (BadMedium, OSError) as error:
        print(json.dumps({"error": {"code": "boot_medium", "message": str(error)}}))
        print(str(error), file=sys.stderr)
        return 1
    return 0


def _apply(given: argparse.Namespace) -> dict[str, str]:
    apply(Path(given.folder), Path(given.root))
    return {"boot": shown(Path(given.root))["boot"]}


def _show(given: argparse.Namespace) -> dict[str, str]:
    return shown(Path(given.root))
