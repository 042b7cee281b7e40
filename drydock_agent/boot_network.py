"""Set a booted ramdisk up from its second medium, and connect it to its network.

    python3 -m drydock_agent.boot_network /mnt

The ramdisk has no systemd, so the network is configured with `ip` and `udhcpc`. The exit code is 1 if the medium cannot
be used or the network is not there, which the output says.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from drydock_agent.boot_medium import BadMedium, Network, apply, read

CARRIER_SECONDS = 90.0
"""How long network ports have to find a link."""
_LOOK = 0.5

Run = Callable[[Sequence[str]], None]


class NoNetwork(Exception):
    """The network cannot be configured. The text says why."""


def connect(network: Network, root: Path, run: Run, *, seconds: float = CARRIER_SECONDS) -> str:
    """Configure a network port that has a link, and return its name. Waits for one. Raises NoNetwork.

    It is the port of the MAC, if there is one. Otherwise it is the first that gets an address by DHCP, or, for a static
    address, the only one with a link.
    """
    end, failed = time.monotonic() + seconds, dict[str, str]()
    started: set[str] = set()
    while True:
        there = sorted(name for name, own in _ports(root).items() if network.mac in ("", own))
        for name in [one for one in there if one not in started]:
            run(["ip", "link", "set", name, "up"])
            started.add(name)
        linked = [name for name in there if _read(root / "sys/class/net" / name / "carrier") == "1"]
        if linked and not network.dhcp:
            return _static(network, linked, root, run)
        for name in [one for one in linked if one not in failed]:
            if not (problem := _dhcp(name, run)):
                return name
            failed[name] = problem
        if time.monotonic() >= end:
            raise NoNetwork(_why(network, root, failed))
        time.sleep(_LOOK)


def _dhcp(port: str, run: Run) -> str:
    """Get an address for a port. Return the problem, or an empty string. The client then renews in the background."""
    try:
        run(["udhcpc", "-i", port, "-n", "-t", "8", "-T", "3"])
    except NoNetwork as error:
        return str(error)
    return ""


def _static(network: Network, linked: Sequence[str], root: Path, run: Run) -> str:
    if len(linked) > 1:
        raise NoNetwork(f"several ports have a link ({', '.join(linked)}); name the MAC of one in the registration")
    port = linked[0]
    run(["ip", "address", "replace", network.address, "dev", port])
    if network.gateway:
        # onlink: the gateway of some networks is outside of the machine's own prefix.
        run(["ip", "route", "replace", "default", "via", network.gateway, "dev", port, "onlink"])
    if network.dns:
        (root / "etc" / "resolv.conf").write_text("".join(f"nameserver {one}\n" for one in network.dns))
    return port


def _why(network: Network, root: Path, failed: Mapping[str, str]) -> str:
    if failed:
        return f"no DHCP server has answered: {'; '.join(failed.values())}"[:800]
    ports = ", ".join(f"{name} {own}" for name, own in _ports(root).items()) or "none"
    return f"no port{f' with the MAC {network.mac}' if network.mac else ''} has a link; this machine has: {ports}"


def _ports(root: Path) -> dict[str, str]:
    """Return the MAC of each physical port."""
    folder = root / "sys" / "class" / "net"
    names = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    return {name: _read(folder / name / "address").lower() for name in names if (folder / name / "device").exists()}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""  # the carrier of a port that is down cannot be read


def _run(words: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", timeout=120,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoNetwork(f"{words[0]} failed: {error}") from None
    if done.returncode:
        raise NoNetwork(f"`{' '.join(words)}` failed: {done.stderr.strip()[-300:]}")


def main(argv: Sequence[str]) -> int:
    """Set this machine up from the medium that is mounted at a folder, and return the exit code."""
    if len(argv) != 1:
        print("usage: python3 -m drydock_agent.boot_network FOLDER")
        return 2
    folder, root = Path(argv[0]), Path("/")
    try:
        network = read(folder).network
        apply(folder, root)
        port = connect(network, root, _run)
    except (BadMedium, NoNetwork, OSError) as error:
        print(f"the medium or the network cannot be used: {error}")
        return 1
    print(f"the keys of the medium are installed, and {port} is connected")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
