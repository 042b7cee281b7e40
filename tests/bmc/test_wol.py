"""The driver `wol` against a real sshd that runs while its machine is on."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from blueprints.bmc import wol
from blueprints.bmc.errors import BmcError, BmcLoginRefused, BmcRefused, BmcUnreachable
from blueprints.bmc.values import PowerAction, PowerState
from blueprints.bmc.wol import WolDriver, WolSession
from interfaces.keys import new_key_pair
from tests.bmc.conformance import BmcConformance
from tests.bmc.wol_double import MAC, MAGIC, Machine
from tests.peers import require

DRIVER = WolDriver()
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the control account of the double is ours, and must be root")


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    require("sshd")
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    machine.close()


@pytest.fixture(autouse=True)
def machine(double: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The double, off. Nothing here may run the real scripts: they would end this machine."""
    scripts = {action: f"echo {action} >> {double.asked}" for action in wol.SCRIPTS}
    monkeypatch.setattr(wol, "SCRIPTS", scripts)
    monkeypatch.setattr(wol, "PROBE", 0.1)
    monkeypatch.setattr(wol, "PAUSE", 0.05)
    monkeypatch.setattr(wol, "ANSWER", 1.0)
    double.off()
    return double


def session(machine: Machine, *, deadline: float = 30, credential: dict[str, str] | None = None, **fields: object):
    access = wol.Access.model_validate(machine.access(**fields))
    return DRIVER.open(access, credential or machine.credential, deadline=deadline)


class TestConformance(BmcConformance):
    driver = DRIVER
    session = WolSession

    @pytest.fixture(autouse=True)
    def _machine(self, machine: Machine) -> None:
        self.machine = machine

    def access(self):
        return self.machine.access()

    def credential(self):
        return self.machine.credential

    def silent_access(self):
        return self.machine.access()


def test_a_magic_packet_is_sent_more_than_once(machine: Machine) -> None:
    machine.heard.clear()
    with session(machine) as one:
        one.switch(PowerAction.ON)
        assert one.power() in (PowerState.ON, PowerState.UNKNOWN, PowerState.OFF)
    while len(machine.heard) < wol.PACKETS:
        pass
    assert machine.heard == [MAGIC] * wol.PACKETS


@pytest.mark.parametrize(("means_off", "state"), [(True, PowerState.OFF), (False, PowerState.UNKNOWN)])
def test_silence_means_off_only_where_the_registration_says_so(machine: Machine, means_off, state) -> None:
    with session(machine, silence_is_off=means_off) as one:
        assert one.power() is state


def test_a_machine_that_refuses_connections_is_neither_on_nor_off(machine: Machine) -> None:
    machine.refuse()
    with session(machine) as one:
        assert one.power() is PowerState.UNKNOWN
        with pytest.raises(BmcUnreachable):
            one.switch(PowerAction.RESET)


def test_silence_for_less_than_the_tries_is_not_off(machine: Machine) -> None:
    with session(machine, deadline=0.15) as one:
        assert one.power() is PowerState.UNKNOWN


def test_another_machine_at_the_address_is_not_given_anything(machine: Machine) -> None:
    machine.on()
    _up(machine)
    asked, other = machine.asked.read_text(), new_key_pair().public
    with session(machine, host_keys=other) as one:
        for call in (one.power, lambda: one.switch(PowerAction.OFF)):
            with pytest.raises(BmcError, match="Nothing was sent to it"):
                call()
    assert machine.asked.read_text() == asked


def _up(machine: Machine) -> None:
    """Wait until sshd answers."""
    with session(machine) as one:
        while one.power() is not PowerState.ON:
            pass


def test_a_key_that_is_refused_is_not_shown(machine: Machine) -> None:
    machine.on()
    _up(machine)
    wrong = new_key_pair().private
    with session(machine, credential={"private_key": wrong}) as one, pytest.raises(BmcLoginRefused) as caught:
        one.power()
    assert wrong.splitlines()[1] not in str(caught.value)
    with session(machine, credential={"private_key": "no key"}) as one, pytest.raises(BmcLoginRefused) as caught:
        one.power()
    assert "no key" not in str(caught.value)


def test_a_script_that_fails_says_why(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.on()
    _up(machine)
    monkeypatch.setattr(wol, "SCRIPTS", {PowerAction.OFF: "echo poweroff is not installed >&2; exit 1"})
    with session(machine) as one, pytest.raises(BmcRefused, match="poweroff is not installed"):
        one.switch(PowerAction.OFF)


def test_a_machine_that_dies_before_it_answers_has_done_as_told(machine: Machine, monkeypatch) -> None:
    machine.on()
    _up(machine)
    monkeypatch.setattr(wol, "SCRIPTS", {PowerAction.OFF: f"echo off >> {machine.asked}; sleep 20"})
    with session(machine) as one:
        one.switch(PowerAction.OFF)
        while one.power() is not PowerState.OFF:
            pass


def test_the_inventory_has_what_the_system_knows(machine: Machine) -> None:
    machine.on()
    _up(machine)
    with session(machine) as one:
        found = one.inspect()
    assert found.arch == os.uname().machine
    assert found.threads
    assert found.memory_mib
    assert str(found.identities[0]) == f"mac {MAC}"
    assert found.missing == (f"No network port of the machine has the MAC address {MAC}.",)
    machine.off()
    with session(machine, deadline=1) as one:
        found = one.inspect()
    assert (found.arch, len(found.identities), len(found.missing)) == ("", 1, 1)


@pytest.mark.parametrize("text", ["B0-7B-25-C0-FF-EE", "b07b25c0ffee", " b0:7b:25:c0:ff:ee "])
def test_mac_addresses_are_read_in_every_spelling(machine: Machine, text: str) -> None:
    access = wol.Access.model_validate(machine.access(mac=text))
    assert (access.mac, DRIVER.identity(access)) == (MAC, MAC)


@pytest.mark.parametrize("text", ["", "b0:7b:25:c0:ff", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "b0:7b:25:c0:ff:eg"])
def test_what_is_no_port_of_a_machine_is_refused(machine: Machine, text: str) -> None:
    with pytest.raises(ValidationError, match="MAC address of one network port"):
        wol.Access.model_validate(machine.access(mac=text))


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder with programs that only write down how they are called: all that the scripts can find."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in ("systemctl", "poweroff", "reboot", "shutdown", "sync", "sleep"):
        stub = folder / name
        stub.write_text("#!/bin/sh\n" + (name != "sleep") * f'echo "{name} $*" >> {tmp_path}/called\n')
        stub.chmod(stat.S_IRWXU)
    return folder


@pytest.mark.parametrize(
    ("action", "with_systemd", "without"),
    [
        (PowerAction.SHUTDOWN, "systemctl poweroff", "shutdown -h now"),
        (PowerAction.OFF, "systemctl poweroff --force --force", "poweroff -f"),
        (PowerAction.RESET, "systemctl reboot --force --force", "reboot -f"),
    ],
)
@pytest.mark.parametrize("systemd", [True, False])
def test_the_scripts_call_what_the_system_has(monkeypatch, stubs: Path, action, with_systemd, without, systemd) -> None:
    monkeypatch.undo()
    # The folder by which systemd is recognized.
    script = wol.SCRIPTS[action].replace("/run/systemd/system", str(stubs if systemd else stubs / "none"))
    assert script != wol.SCRIPTS[action]
    subprocess.run(["/bin/sh", "-c", script, "sh"], env={"PATH": str(stubs)}, check=True, timeout=20)
    called = stubs.parent / "called"
    wanted = with_systemd if systemd else without
    while not called.exists() or wanted not in called.read_text().splitlines():
        pass
    assert [line.strip() for line in called.read_text().splitlines() if line.strip() != "sync"] == [wanted]
