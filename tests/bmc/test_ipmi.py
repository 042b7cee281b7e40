"""The driver `ipmi` against a BMC in a process of its own, which ipmitool checks as a peer."""

from __future__ import annotations

import datetime as dt
import os
import random
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from pydantic import ValidationError

from blueprints.bmc import ipmi
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.ipmi import IpmiDriver, IpmiSession
from blueprints.bmc.values import BootDevice, BootOverride, PowerAction, PowerState
from tests.bmc.conformance import BmcConformance
from tests.bmc.ipmi_double import GUID, MAC, PASSWORD, USER, Double, running
from tests.peers import require

DRIVER = IpmiDriver()
CREDENTIAL = {"username": USER, "password": PASSWORD}
DEFAULTS = {
    "sha256": True, "strict": False, "no_encryption": False, "mute_names": False, "mute": False, "most_sessions": 20,
    "most_privilege": 4, "refuses": {}, "on": False, "lies": False, "manufacturer": "Acme", "serial": "SN-2231",
    "endless": False, "log_size": 3, "chassis": 0, "mute_after_control": False, "opened": 0, "closed": 0, "nmis": 0,
    "watts": None, "measuring": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def process() -> Iterator[Double]:
    pytest.importorskip("pyghmi")
    with running() as double:
        yield double


@pytest.fixture
def bmc(process: Double) -> Double:
    """The BMC as it was delivered."""
    process.ask(**DEFAULTS)
    return process


@contextmanager
def silence() -> Iterator[int]:
    """The port of something that takes packets and never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
        taking.bind(("127.0.0.1", 0))
        yield taking.getsockname()[1]


def access(number: int, **fields: object) -> ipmi.Access:
    return ipmi.Access.model_validate({"address": "127.0.0.1", "port": number, **fields})


def session(
    port: int, *, deadline: float = 30, password: str = PASSWORD, user: str = USER, **fields: object
) -> IpmiSession:
    return DRIVER.open(access(port, **fields), {"username": user, "password": password}, deadline=deadline)


class TestConformance(BmcConformance):
    driver = DRIVER
    session = IpmiSession

    @pytest.fixture(autouse=True)
    def _double(self, bmc: Double) -> Iterator[None]:
        self.double = bmc
        with silence() as self.silent:
            yield

    def access(self):
        return {"address": "127.0.0.1", "port": self.double.port}

    def credential(self):
        return CREDENTIAL

    def wrong_credential(self):
        return {"username": USER, "password": "a wrong secret"}

    def silent_access(self):
        return {"address": "127.0.0.1", "port": self.silent}

    def sessions(self):
        return self.double.sessions


def test_the_inventory_has_what_the_bmc_says(bmc: Double) -> None:
    with session(bmc.port) as one:
        found = one.inspect()
    assert (found.vendor, found.model, found.serial, found.sku) == ("Acme", "Rocket 2", "SN-2231", "R2-D")
    assert (found.uuid, found.bmc_version, found.health) == (str(GUID), "2.34", "ok")
    assert {str(one) for one in found.identities} == {
        f"bmc_mac {MAC}", f"dmi_uuid {GUID}", "serial:acme SN-2231",
    }  # fmt: skip
    assert found.missing == ()


def test_what_cannot_be_read_is_missing_and_placeholders_are_left_out(bmc: Double) -> None:
    bmc.ask(refuses={"6 37": 0xC1, "c 2": 0xD4}, serial="To be filled by O.E.M.", manufacturer="N/A")
    with session(bmc.port) as one:
        found = one.inspect()
    assert (found.vendor, found.serial, found.identities) == ("", "", ())
    assert [text.split(" could")[0] for text in found.missing] == ["The UUID", "The MAC address of the BMC"]


def test_sensors_have_values_and_thresholds(bmc: Double) -> None:
    with session(bmc.port) as one:
        found = {sensor.name: sensor for sensor in one.sensors()}
    assert (found["CPU Temp"].value, found["CPU Temp"].unit, found["CPU Temp"].state) == (41.0, "Cel", "ok")
    assert (found["Fan 1"].value, found["Fan 1"].unit, found["Fan 1"].state) == (88.0, "RPM", "critical")
    # One without its last byte, one without a reading, and none with a unit that does not exist.
    assert (found["Short"].value, found["Short"].state) == (7.0, "ok")
    assert (found["Empty"].value, found["Empty"].state) == (None, "unknown")
    assert set(found) == {"CPU Temp", "Fan 1", "Short", "Empty"}


def test_the_power_of_the_machine_is_read_by_dcmi(bmc: Double) -> None:
    def watts() -> list[float | None]:
        with session(bmc.port) as one:
            return [sensor.value for sensor in one.sensors() if sensor.whole]

    assert watts() == []
    bmc.ask(watts=1400)
    assert watts() == [1400.0]
    bmc.ask(measuring=False)
    assert watts() == []
    bmc.ask(measuring=True, refuses={"2c 2": 0xC0})
    assert watts() == [], "a BMC that is busy with this still has its other sensors"


@pytest.mark.parametrize(("size", "first", "count"), [(0, "", 0), (3, "1", 3), (250, "51", 200)])
def test_the_newest_entries_of_the_log_are_read_with_times_by_our_clock(bmc, size, first, count) -> None:
    bmc.ask(log_size=size)
    with session(bmc.port) as one:
        before = int(bmc.ask()["requests"])
        found = one.entries()
        asked = int(bmc.ask()["requests"]) - before
    assert len(found) == count
    assert asked < count + 40
    if found:
        assert (found[0].id, found[0].severity) == (first, "critical")
        assert "CPU Temp" in found[0].message
        # The clock of this BMC is an hour late.
        assert all(abs((one.at - dt.datetime.now(dt.UTC)).total_seconds()) < 600 for one in found if one.at)


def test_power_that_lies_is_reported_as_it_reads(bmc: Double) -> None:
    bmc.ask(lies=True)
    with session(bmc.port) as one:
        one.switch(PowerAction.ON)
        assert one.power() is PowerState.OFF


def test_a_reset_of_a_machine_that_is_off_says_so(bmc: Double) -> None:
    with session(bmc.port) as one, pytest.raises(BmcRefused, match=r"action reset while the power is off\."):
        one.switch(PowerAction.RESET)


def test_an_nmi_is_sent_once_even_if_no_answer_comes(bmc: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    from blueprints.bmc import ipmi_client

    monkeypatch.setattr(ipmi_client, "ONCE", 0.3)
    bmc.ask(on=True, mute_after_control=True)
    with session(bmc.port) as one:
        with pytest.raises(BmcUnreachable, match="may have carried out"):
            one.switch(PowerAction.NMI)
        bmc.ask(mute=False, mute_after_control=False)
    assert bmc.ask()["nmis"] == 1
    with session(bmc.port) as one:
        one.switch(PowerAction.NMI)
    assert bmc.ask()["nmis"] == 2


def test_boot_overrides_ask_for_uefi_unless_the_registration_says_otherwise(bmc: Double) -> None:
    for uefi, flags in ((True, "a0"), (False, "80")):
        with session(bmc.port, uefi=uefi) as one:
            one.set_boot(BootOverride(device=BootDevice.MEDIUM))
            assert bmc.ask()["boot"] == f"{flags}14000000"


def test_a_boot_device_that_ipmi_does_not_have_is_refused(bmc: Double) -> None:
    with session(bmc.port) as one, pytest.raises(BmcLacks, match="boot device http"):
        one.set_boot(BootOverride(device=BootDevice.HTTP))


def test_a_bmc_without_boot_overrides_says_so(bmc: Double) -> None:
    bmc.ask(refuses={"0 8": 0x80, "0 9": 0x80})
    with session(bmc.port) as one:
        with pytest.raises(BmcLacks):
            one.boot()
        with pytest.raises(BmcLacks):
            one.set_boot(BootOverride(device=BootDevice.DISK))


@pytest.mark.parametrize(
    ("refused", "error"),
    [(0xC1, BmcLacks), (0xCC, BmcLacks), (0xD6, BmcLacks), (0xC0, BmcBusy), (0xC3, BmcBusy), (0xD4, BmcRefused)],
)
def test_completion_codes_become_errors(bmc: Double, refused: int, error: type[BmcError]) -> None:
    bmc.ask(refuses={"0 2": refused})
    with session(bmc.port) as one, pytest.raises(error) as caught:
        one.switch(PowerAction.ON)
    assert type(caught.value) is error or refused == 0xD4


@pytest.mark.parametrize(
    ("options", "suite"),
    [({}, "auto"), ({}, "17"), ({}, "3"), ({"sha256": False}, "auto"), ({"sha256": False, "strict": True}, "auto")],
)
def test_cipher_suites_are_agreed_on(bmc: Double, options: dict[str, bool], suite: str) -> None:
    bmc.ask(**options)
    with session(bmc.port, cipher_suite=suite) as one:
        assert one.power() is PowerState.OFF


@pytest.mark.parametrize(
    ("options", "suite"),
    [({"sha256": False}, "17"), ({"sha256": False, "strict": True}, "17"), ({"no_encryption": True}, "auto")],
)
def test_a_weaker_suite_than_allowed_is_refused(bmc: Double, options: dict[str, bool], suite: str) -> None:
    bmc.ask(**options)
    with pytest.raises(BmcRefused, match="no cipher suite in common"):
        session(bmc.port, cipher_suite=suite)
    assert bmc.sessions == 0


def test_an_account_without_administrator_gets_less(bmc: Double) -> None:
    bmc.ask(most_privilege=3)
    with session(bmc.port) as one:
        assert (one.login().role, one.login().missing) == ("Operator", ())
    with pytest.raises(BmcLoginRefused, match="Invalid role"):
        session(bmc.port, privilege="administrator")
    bmc.ask(most_privilege=2)
    with session(bmc.port, privilege="user") as one:
        assert one.login().missing == ("operator: change the power and the boot device",)
    assert bmc.sessions == 0


@pytest.mark.parametrize(
    ("options", "login", "error", "says"),
    [
        ({}, {"password": "an utter secret"}, BmcLoginRefused, "Incorrect password"),
        ({}, {"user": "nobody"}, BmcLoginRefused, "Unauthorized name"),
        ({"mute_names": True}, {"user": "nobody"}, BmcLoginRefused, "stopped answering when it got the user name"),
        ({"most_sessions": 0}, {}, BmcBusy, "no free session"),
    ],
)
def test_a_login_that_is_refused_says_why(bmc: Double, monkeypatch, options, login, error, says) -> None:
    from blueprints.bmc import ipmi_client

    monkeypatch.setattr(ipmi_client, "LOGINS_WITHOUT_ANSWER", 2)
    bmc.ask(**options)
    with pytest.raises(error, match=says) as caught:
        session(bmc.port, deadline=12, **login)
    assert "secret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert bmc.sessions == 0


def test_a_bmc_that_falls_silent_ends_at_the_deadline(bmc: Double) -> None:
    bmc.ask(mute=True)
    with (
        session(bmc.port, deadline=1.5) as one,
        pytest.raises(BmcUnreachable, match=r"stopped answering within 1\.5 s"),
    ):
        one.power()


def test_tables_without_end_are_given_up(bmc: Double) -> None:
    bmc.ask(endless=True)
    with session(bmc.port) as one:
        with pytest.raises(BmcAnswerInvalid):
            one.sensors()
        with pytest.raises(BmcAnswerInvalid):
            one.entries()


def test_a_port_that_is_closed_is_told_at_once() -> None:
    with silence() as port:
        pass
    with pytest.raises(BmcUnreachable, match="the port is closed"):
        session(port)


GARBAGE = [
    b"", b"\x06", b"\x06\x00\xff\x07", b"\x06\x00\xff\x07\x06" + bytes(30), b"\xff" * 500, bytes(3000),
    b"\x06\x00\xff\x07\x06\x11" + b"\xff" * 40, b"\x06\x00\xff\x07\x00" + b"\xff" * 20,
]  # fmt: skip


def test_garbage_is_not_taken_for_an_answer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as babbling:
        babbling.bind(("127.0.0.1", 0))
        stop = threading.Event()

        def babble() -> None:
            while not stop.is_set():
                if select.select([babbling], [], [], 0.05)[0]:
                    _, who = babbling.recvfrom(4096)
                    for part in GARBAGE:
                        babbling.sendto(part, who)

        thread = threading.Thread(target=babble)
        thread.start()
        try:
            with pytest.raises((BmcAnswerInvalid, BmcUnreachable)):
                session(babbling.getsockname()[1], deadline=0.8)
        finally:
            stop.set()
            thread.join()


class Proxy:
    """A network between us and the BMC, which treats each packet as `fate` says: how often it arrives, and as what."""

    def __init__(self, port: int, fate: Callable[[bytes], list[bytes]]) -> None:
        self._fate, self._port = fate, port
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self.port = self._front.getsockname()[1]
        self._back: dict[tuple[str, int], socket.socket] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            ready = select.select([self._front, *self._back.values()], [], [], 0.05)[0]
            for one in ready:
                with suppress(OSError):
                    self._forward(one)

    def _forward(self, one: socket.socket) -> None:
        data, who = one.recvfrom(4096)
        if one is self._front:
            if who not in self._back:
                self._back[who] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                self._back[who].connect(("127.0.0.1", self._port))
            for part in self._fate(data):
                self._back[who].send(part)
            return
        (client,) = [name for name, back in self._back.items() if back is one]
        for part in self._fate(data):
            self._front.sendto(part, client)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for one in (self._front, *self._back.values()):
            one.close()


@contextmanager
def through(port: int, fate: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    proxy = Proxy(port, fate)
    try:
        yield proxy.port
    finally:
        proxy.close()


def test_lost_doubled_and_broken_packets_are_got_over(bmc: Double) -> None:
    chance = random.Random(7)

    def fate(data: bytes) -> list[bytes]:
        kind = chance.random()
        if kind < 0.05:
            return []
        if kind < 0.12:
            return [data[: len(data) // 2], bytes([data[0]]) + bytes(len(data) - 1), data]
        return [data] * (2 if kind < 0.3 else 1)

    with through(bmc.port, fate) as port, session(port, deadline=60) as one:
        one.switch(PowerAction.ON)
        assert one.power() is PowerState.ON
        one.set_boot(BootOverride(device=BootDevice.DISK, once=False))
        assert one.boot() == BootOverride(device=BootDevice.DISK, once=False)
    assert bmc.ask()["on"]


def test_a_lost_end_of_the_session_is_repeated(bmc: Double) -> None:
    lose = [0]

    def fate(data: bytes) -> list[bytes]:
        lose[0] -= 1
        return [] if lose[0] >= 0 else [data]

    with through(bmc.port, fate) as port:
        one = session(port)
        before = bmc.sessions
        lose[0] = 1
        one.close()
        assert bmc.sessions == before - 1


def test_sessions_in_threads_do_not_mix_and_a_hanging_one_stops_no_other(bmc: Double) -> None:
    found: list[object] = []

    def use(port: int, deadline: float) -> None:
        try:
            with session(port, deadline=deadline) as one:
                found.append(one.inspect().serial)
        except BmcError as error:
            found.append(type(error))

    with silence() as mute:
        uses = [(bmc.port, 30)] * 8 + [(mute, 0.7)] * 2
        threads = [threading.Thread(target=use, args=one) for one in uses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(str, found)) == sorted(map(str, ["SN-2231"] * 8 + [BmcUnreachable] * 2))


def test_nothing_is_left_in_the_tables_and_threads_of_pyghmi(bmc: Double) -> None:
    from pyghmi.ipmi.private import session as pyghmi

    for password in (PASSWORD, "wrong"):
        with suppress(BmcLoginRefused), session(bmc.port, password=password) as one:
            one.sensors()
    tables = ("bmc_handlers", "waiting_sessions", "initting_sessions", "keepalive_sessions", "socketpool")
    assert {name: getattr(pyghmi.Session, name) for name in tables} == {name: {} for name in tables}
    assert (pyghmi.iothread, pyghmi.iosockets) == (None, [])


def test_a_child_cannot_use_the_session_of_its_parent_and_has_its_own(bmc: Double) -> None:
    with session(bmc.port) as one:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            said = b"nothing"
            with suppress(BaseException):
                try:
                    one.power()
                except BmcError as error:
                    said = str(error).encode()
                one.close()
                with session(bmc.port) as other:
                    said += f" {other.power()}".encode()
            os.write(write, said)
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        said = os.read(read, 1000).decode()
        os.close(read)
        assert "used by a child" in said
        assert said.endswith(" off")
        assert one.power() is PowerState.OFF
    assert bmc.sessions == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"password": "x" * 21}, "at most 20 bytes"),
        ({"password": "ä" * 11}, "at most 20 bytes"),
        ({"username": "x" * 17}, "at most 16 bytes"),
    ],
)
def test_a_credential_that_ipmi_cannot_take_is_refused_without_being_quoted(fields, says) -> None:
    with pytest.raises(ValidationError, match=says) as caught:
        ipmi.Credential.model_validate({**CREDENTIAL, **fields})
    assert "xxx" not in str(caught.value)
    assert "ää" not in str(caught.value)


def test_a_credential_that_was_stored_unchecked_is_not_tried(bmc: Double) -> None:
    with pytest.raises(BmcLoginRefused, match=r"password: Value error, IPMI 2\.0 allows at most 20 bytes") as caught:
        session(bmc.port, password="a very long secret that is longer")
    assert "secret" not in str(caught.value)


def test_a_name_that_is_not_resolved_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: resolver.wait(30) and [])
    try:
        with pytest.raises(BmcUnreachable, match=r"bmc\.example\.org was not resolved within 0\.2 s"):
            session(623, address="bmc.example.org", deadline=0.2)
    finally:
        resolver.set()


def test_a_name_that_does_not_exist_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", missing)
    with pytest.raises(BmcUnreachable, match="cannot be resolved"):
        session(623, address="bmc.example.org")


@pytest.mark.parametrize(
    "fields",
    [{"address": "http://bmc"}, {"address": ""}, {"address": "a b"}, {"address": "127.1"}, {"address": "-x"},
     {"port": 0}, {"port": 70000}, {"cipher_suite": "0"}, {"privilege": "root"}],
)  # fmt: skip
def test_an_access_that_makes_no_sense_is_refused(fields) -> None:
    with pytest.raises(ValidationError):
        access(623, **fields)


def test_the_identity_ignores_the_case_of_the_name() -> None:
    one, other = (DRIVER.identity(access(623, address=name)) for name in ("BMC-7.example.org", "bmc-7.example.org"))
    assert one == other == "bmc-7.example.org:623"


def test_a_missing_pyghmi_is_named_with_a_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['pyghmi'] = None\n"
        "from blueprints.bmc.ipmi import Access, IpmiDriver\n"
        "try: IpmiDriver().open(Access(address='127.0.0.1'), {'username': 'a', 'password': 'b'}, deadline=1)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("BmcError The BMC driver ipmi needs a package")
    assert "pip install 'pyghmi>=1.6'" in done.stdout


@pytest.mark.parametrize("suite", ["3", "17"])
def test_the_double_is_a_bmc_to_ipmitool(bmc: Double, suite: str) -> None:
    def run(*words: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
        command = [require("ipmitool"), "-I", "lanplus", "-C", suite, "-H", "127.0.0.1", "-p", str(bmc.port)]
        return subprocess.run(
            [*command, "-U", USER, "-E", "-R", "2", "-N", "1", *words],
            env={**os.environ, "IPMI_PASSWORD": password}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    assert run("chassis", "power", "status").stdout == "Chassis Power is off\n"
    with session(bmc.port, cipher_suite=suite) as one:
        one.switch(PowerAction.ON)
        one.set_boot(BootOverride(device=BootDevice.NETWORK, once=False))
    assert run("chassis", "power", "status").stdout == "Chassis Power is on\n"
    flags = run("chassis", "bootparam", "get", "5").stdout
    assert "Options apply to all future boots" in flags
    assert "Force PXE" in flags
    assert "EFI" in flags
    assert "SN-2231" in run("fru", "print", "0").stdout
    assert "CPU Temp" in run("sdr", "elist").stdout
    assert "Unable to establish" in run("chassis", "power", "status", password="wrong").stderr
