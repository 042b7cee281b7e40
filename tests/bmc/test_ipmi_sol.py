"""Serial over LAN against a BMC in a process of its own, with a real program on its console; `ipmitool` is a peer."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from blueprints.bmc import ipmi_sol
from blueprints.bmc.errors import BmcError, BmcLacks
from interfaces.console import Line
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy, ConsoleClosed
from tests.bmc.ipmi_double import PASSWORD, USER, Double
from tests.bmc.test_ipmi import bmc, process, session, silence
from tests.consoles.lines import exchanged, read_to_the_end
from tests.peers import require

__all__ = ["bmc", "process"]

RAW = "stty -echo raw; echo ready; exec cat"


@pytest.fixture
def wired(bmc: Double) -> Iterator[Double]:
    bmc.ask(console=RAW, owner=0, deactivations=0)
    yield bmc
    bmc.ask(console=None)


@contextlib.contextmanager
def console(double: Double, *, take: bool = False, cipher: str = "auto") -> Iterator[Line]:
    with session(double.port, cipher_suite=cipher) as one:
        line = one.serial(Deadline(10), take=take)
        try:
            yield line
        finally:
            line.close()


@pytest.mark.parametrize("cipher", ["3", "17"])
def test_every_byte_comes_back_as_it_was_typed(wired: Double, cipher: str) -> None:
    with console(wired, cipher=cipher) as line:
        exchanged(line, expect=b"ready")
        line.read(0.2)
        content = bytes(range(256)) * 4
        assert exchanged(line, content, expect=len(content)) == content
        assert wired.ask()["owner"]
    state = wired.ask()
    assert (state["owner"], state["deactivations"], state["sessions"]) == (0, 1, 0)


def test_a_console_outlives_the_deadline_of_its_session(wired: Double) -> None:
    with session(wired.port, deadline=1.0) as one:
        line = one.serial(Deadline(10), take=False)
        exchanged(line, expect=b"ready")
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            line.read(0.1)
        assert exchanged(line, b"still here", expect=10) == b"still here"
        line.close()


def test_a_console_in_use_is_refused_and_can_be_taken(wired: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi_sol, "_ALIVE_EVERY", 0.0)
    with console(wired) as first:
        exchanged(first, expect=b"ready")
        with pytest.raises(ConsoleBusy, match="Somebody else uses the console"), console(wired):
            raise AssertionError
        with console(wired, take=True) as second:
            assert exchanged(second, b"mine", expect=4) == b"mine"
            with pytest.raises(ConsoleClosed, match="Another session took the console over"):
                first.read(0.5)


def test_a_bmc_without_a_console_and_one_that_falls_silent_say_so(bmc: Double, wired: Double) -> None:
    with console(wired) as line:
        wired.ask(mute=True)
        line._client.renew(1.0)  # type: ignore[attr-defined]
        with pytest.raises(BmcError, match="stopped answering"):
            line._client.ask(6, 1)  # type: ignore[attr-defined]
        wired.ask(mute=False)
    bmc.ask(console=None)
    with pytest.raises(BmcLacks, match="serial over LAN is disabled"), console(bmc):
        raise AssertionError
    with silence() as nothing, pytest.raises(BmcError), session(nothing, deadline=0.5):
        raise AssertionError


class Wire:
    """Stands for a client: what a line sends is kept, and packets are handed to it.

    The layout of packets is that of IPMI 2.0, table 15-2; the tests above check the same line against a BMC.
    """

    port, session_id = 623, 7

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.asked: list[int] = []

    def renew(self, seconds: float) -> None:
        assert seconds > 0

    def ask(self, netfn: int, command: int, data: object = ()) -> bytes:
        self.asked.append(command)
        return bytes([0, 0, 0, 0, 14, 0, 14, 0, 0x6F, 2, 0xFF, 0xFF]) if command == 0x48 else bytes([7, 0, 0, 0])

    def receive_serial(self, handler: object) -> None:
        self.handler = handler

    def send_serial(self, packet: bytes) -> None:
        self.sent.append(packet)

    def wait(self, seconds: float) -> None:
        """Nothing comes."""


def wire() -> tuple[Wire, ipmi_sol.SolLine]:
    client = Wire()
    return client, ipmi_sol.SolLine(client, Deadline(10), take=False)  # type: ignore[arg-type]


def test_a_repeated_packet_is_acknowledged_again_and_read_once() -> None:
    client, line = wire()
    for packet in (
        b"\x01\x00\x00\x00abc",
        b"\x01\x00\x00\x00abc",
        b"\x01\x00\x00\x00abcde",
        b"\x02\x00\x00\x00f",
        b"\x03",
    ):
        client.handler(packet)  # type: ignore[operator]
    assert line.read(0) == b"abcdef"
    assert client.sent == [b"\x00\x01\x03\x00", b"\x00\x01\x03\x00", b"\x00\x01\x05\x00", b"\x00\x02\x01\x00"]


def test_what_is_not_acknowledged_is_repeated_and_what_is_taken_by_half_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, line = wire()
    assert line.write(b"0123456789abc") == 10, "14 bytes with the header"
    assert line.write(b"x") == 0
    client.handler(b"\x00\x01\x04\x00")  # type: ignore[operator]
    assert client.sent[-1] == b"\x02\x00\x00\x00456789"
    monkeypatch.setattr(ipmi_sol, "_AGAIN", 0.0)
    line.read(0)
    assert client.sent[-1] == b"\x02\x00\x00\x00456789"
    client.handler(b"\x00\x02\x06\x00")  # type: ignore[operator]
    assert line.write(b"x") == 1
    with pytest.raises(ConsoleClosed, match="no longer takes"):
        read_to_the_end(line)


def test_what_is_typed_to_a_machine_that_is_off_is_lost_and_an_ended_console_is_noticed() -> None:
    client, line = wire()
    line.write(b"hello")
    client.handler(b"\x00\x01\x00\x60")  # type: ignore[operator]
    assert line.write(b"again") == 5
    client.handler(b"\x01\x00\x00\x10bye")  # type: ignore[operator]
    assert line.read(0) == b"bye"
    with pytest.raises(ConsoleClosed, match="The BMC ended the session"):
        line.read(0)
    with pytest.raises(ConsoleClosed):
        line.write(b"x")
    line.close()
    assert 0x49 not in client.asked


def test_a_bmc_that_sends_faster_than_is_read_is_left_waiting() -> None:
    client, line = wire()
    for number in range(1000):
        client.handler(bytes([number % 15 + 1, 0, 0, 0]) + b"x" * 250)  # type: ignore[operator]
    assert len(client.sent) < 300
    assert sum(len(line.read(0)) for _ in range(20)) == len(client.sent) * 250


def test_the_double_is_a_console_to_ipmitool(wired: Double) -> None:
    command = [
        require("ipmitool"), "-I", "lanplus", "-C", "17", "-H", "127.0.0.1", "-p", str(wired.port), "-U", USER,
        "-P", PASSWORD, "sol", "activate",
    ]  # fmt: skip
    ours, theirs = pty.openpty()
    tool = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def until(expected: bytes) -> None:
        found, end = b"", time.monotonic() + 20
        while expected not in found:
            assert time.monotonic() < end, found
            if select.select([ours], [], [], 0.2)[0]:
                found += os.read(ours, 4096)

    try:
        until(b"ready")
        os.write(ours, b"over the wire")
        until(b"over the wire")
        with pytest.raises(ConsoleBusy), console(wired):
            raise AssertionError
        os.write(ours, b"\r~.")
        assert tool.wait(20) == 0
        assert not wired.ask()["owner"]
    finally:
        tool.kill()
        tool.wait()
        os.close(ours)
