"""The ramdisk connects to the network that its medium names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from drydock_agent.boot_medium import Network
from drydock_agent.boot_network import NoNetwork, connect

ONE, TWO = "52:54:00:00:00:01", "52:54:00:00:00:02"


class Machine:
    """A folder with the ports of a machine, and what was run on it."""

    def __init__(self, root: Path, **carriers: str) -> None:
        self.root, self.ran = root, list[list[str]]()
        self.silent: set[str] = set()
        """The ports at which no DHCP server answers."""
        (root / "etc").mkdir(parents=True)
        for number, (name, carrier) in enumerate(carriers.items(), 1):
            port = root / "sys/class/net" / name
            (port / "device").mkdir(parents=True)
            (port / "address").write_text(f"52:54:00:00:00:0{number}\n")
            (port / "carrier").write_text(f"{carrier}\n")
        (root / "sys/class/net/lo").mkdir(parents=True, exist_ok=True)
        (root / "sys/class/net/lo/address").write_text("00:00:00:00:00:00\n")
        (root / "sys/class/net/lo/carrier").write_text("1\n")

    def run(self, words: Sequence[str]) -> None:
        self.ran.append(list(words))
        if words[0] == "udhcpc" and words[2] in self.silent:
            raise NoNetwork(f"`udhcpc -i {words[2]}` failed")


def connected(machine: Machine, network: Network) -> str:
    return connect(network, machine.root, machine.run, seconds=0)


def test_a_static_address_is_set_at_the_port_of_the_mac(tmp_path: Path) -> None:
    machine = Machine(tmp_path, eth0="1", eth1="1")
    network = Network(address="10.0.0.7/24", gateway="10.0.0.1", dns=("10.0.0.53", "10.0.0.54"), mac=TWO)
    assert connected(machine, network) == "eth1"
    assert machine.ran == [
        ["ip", "link", "set", "eth1", "up"],
        ["ip", "address", "replace", "10.0.0.7/24", "dev", "eth1"],
        ["ip", "route", "replace", "default", "via", "10.0.0.1", "dev", "eth1", "onlink"],
    ]
    assert (tmp_path / "etc/resolv.conf").read_text() == "nameserver 10.0.0.53\nnameserver 10.0.0.54\n"


def test_without_a_mac_it_is_the_port_with_a_link(tmp_path: Path) -> None:
    machine = Machine(tmp_path, eth0="0", eth1="1")
    assert connected(machine, Network(dhcp=True)) == "eth1"
    assert machine.ran[-1][:3] == ["udhcpc", "-i", "eth1"]


def test_of_several_ports_it_is_the_first_at_which_a_dhcp_server_answers(tmp_path: Path) -> None:
    machine = Machine(tmp_path, eth0="1", eth1="1", eth2="1")
    machine.silent = {"eth0"}
    assert connected(machine, Network(dhcp=True)) == "eth1"
    assert [words[2] for words in machine.ran if words[0] == "udhcpc"] == ["eth0", "eth1"]
    machine.silent = {"eth0", "eth1", "eth2"}
    with pytest.raises(NoNetwork, match="no DHCP server has answered: `udhcpc -i eth0` failed; `udhcpc -i eth1`"):
        connected(machine, Network(dhcp=True))


@pytest.mark.parametrize(
    ("carriers", "network", "message"),
    [
        ({"eth0": "1", "eth1": "1"}, Network(address="10.0.0.7/24"), r"several ports have a link \(eth0, eth1\)"),
        ({"eth0": "0"}, Network(dhcp=True), f"no port has a link; this machine has: eth0 {ONE}"),
        ({"eth0": "1"}, Network(dhcp=True, mac=TWO), f"no port with the MAC {TWO} has a link"),
        ({}, Network(dhcp=True), "this machine has: none"),
    ],
)
def test_a_port_that_cannot_be_chosen_is_an_error(
    tmp_path: Path, carriers: dict[str, str], network: Network, message: str
) -> None:
    machine = Machine(tmp_path, **carriers)
    with pytest.raises(NoNetwork, match=message):
        connected(machine, network)
    assert all(words[:3] == ["ip", "link", "set"] for words in machine.ran)
