"""BMCs that fail, lie, fall silent or are not BMCs: each gets a clear error within the deadline, and no secret."""

from __future__ import annotations

import base64
import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from blueprints.bmc import redfish_client, redfish_http, redfish_tree, tls
from blueprints.bmc.contract import Bmc
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcDriverNotInstalled,
    BmcError,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.redfish import Redfish
from blueprints.bmc.values import BootDevice, BootOverride, PowerAction, PowerState
from tests.bmc.double import PASSWORD, RedfishDouble, redfish_double

V1 = "/redfish/v1"
SYSTEM = f"{V1}/Systems/[^/]+"


def opened(double: RedfishDouble, *, deadline: float = 30) -> Bmc:
    return Redfish().open(Redfish.Access(**double.access()), double.credential(), deadline=deadline)


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        ("truncated", "", BmcAnswerInvalid, "something that is not JSON, or only the beginning of it"),
        ("not_json", "", BmcAnswerInvalid, "not JSON.*Log in"),
        ("cut", "", BmcUnreachable, "cannot be reached: it ended the connection"),
        ("dropped", "", BmcUnreachable, "cannot be reached: it ended the connection"),
        ("error", "Out of memory.", BmcRefused, "refused to read .*: Out of memory."),
        ("error_in_200", "The database is locked.", BmcRefused, "refused GET .*: The database is locked."),
        ("unavailable", "120", BmcBusy, "busy: The service is temporarily unavailable. It asks to wait 120 s."),
        ("unavailable", "soon", BmcBusy, "busy: The service is temporarily unavailable.$"),
        ("unauthorized", "", BmcLoginRefused, "refused the credential of drydock"),
        ("redirect", "https://198.18.0.1/", BmcAnswerInvalid, "refers to https://198.18.0.1/.*another server"),
        ("redirect", f"{V1}/Systems/loop", BmcAnswerInvalid, "redirects .* without end"),
    ],
)
def test_a_wrong_answer_is_a_clear_error(double, kind, value, error, message):
    double.fault(kind, f"{V1}/Systems/.*", "GET", value=value)
    with pytest.raises(error, match=message) as failed, opened(double) as session:
        session.power()
    assert PASSWORD not in str(failed.value)
    assert double.sessions == 0


@pytest.mark.parametrize("kind", ["truncated", "not_json", "error", "unavailable", "cut", "dropped", "error_in_200"])
def test_a_wrong_answer_before_the_login_is_an_error_too(double, kind):
    double.fault(kind, f"{V1}/?", value="no")
    with pytest.raises(BmcError):
        opened(double)


def test_a_busy_bmc_says_when_to_come_back(double):
    double.fault("unavailable", SYSTEM, value="7")
    with opened(double) as session, pytest.raises(BmcBusy) as busy:
        session.power()
    assert busy.value.retry_after == 7


def test_a_bmc_that_is_reset_in_between_is_read_again(double):
    double.fault("dropped", SYSTEM, "GET", times=1)
    with opened(double) as session:
        assert session.power() is PowerState.OFF


def test_a_change_is_never_sent_twice(double):
    double.fault("lost", method="POST", path=".*Reset")
    with opened(double) as session:
        with pytest.raises(BmcUnreachable):
            session.switch(PowerAction.ON)
        assert session.power() is PowerState.ON
    assert double.machine.asked == ["On"]


def test_a_change_that_is_redirected_is_not_done(double):
    double.fault("redirect", method="POST", path=".*Reset", value=f"{V1}/other")
    with opened(double) as session, pytest.raises(BmcAnswerInvalid, match="Nothing was done"):
        session.switch(PowerAction.ON)


def test_an_error_in_a_success_of_a_change_is_one(double):
    double.fault("error_in_200", method="POST", path=".*Reset", value="The job queue is full.")
    with opened(double) as session, pytest.raises(BmcRefused, match=r"The job queue is full."):
        session.switch(PowerAction.ON)


@pytest.mark.parametrize("where", ["redirect", "link"])
def test_no_other_server_gets_the_credential(double, where):
    with redfish_double() as other:
        if where == "redirect":
            double.fault("redirect", SYSTEM, value=f"{other.url}{V1}/Systems/x")
        else:
            double.resources.changes[f"{V1}/Systems"] = lambda body: {
                **body, "Members": [{"@odata.id": f"{other.url}{V1}/Systems/x"}]
            }  # fmt: skip
        with opened(double) as session, pytest.raises(BmcAnswerInvalid, match="another server"):
            session.power()
        assert not other.calls


@pytest.mark.parametrize(
    "link", ["http://[", "//198.18.0.1/x", "javascript:1", "https://127.0.0.1:1/x", "http://127.0.0.1/x", "\ud800:"]
)
def test_a_link_that_leads_nowhere_is_not_followed(double, link):
    double.resources.changes[f"{V1}/Systems"] = lambda body: {**body, "Members": [{"@odata.id": link}]}
    with opened(double) as session, pytest.raises(BmcError):
        session.power()


def test_a_link_with_the_name_of_the_same_server_is_followed(double):
    path = f"{V1}/Systems/{double.machine.uuid}"
    double.resources.changes[f"{V1}/Systems"] = lambda body: {**body, "Members": [{"@odata.id": double.url + path}]}
    with opened(double) as session:
        assert session.power() is PowerState.OFF


def test_an_image_address_that_is_none_is_refused(double):
    with opened(double) as session:
        for call in (lambda: session.insert("Cd", "http://["), lambda: session.start_update("http://[")):
            with pytest.raises(BmcRefused, match="not a valid one"):
                call()


def test_pages_without_end_are_given_up(double, monkeypatch):
    monkeypatch.setattr(redfish_client, "MOST_PAGES", 7)
    double.resources.log = [{"@odata.id": "/x/1", "Id": "1", "Message": "An event"}]
    double.fault("endless", ".*/Sel/Entries")
    with opened(double) as session, pytest.raises(BmcAnswerInvalid, match=r"does not end the list .* 7 pages"):
        session.entries()


def test_a_session_takes_a_limited_number_of_bytes(double, monkeypatch):
    """Each answer is short enough, but there is no end of them."""
    monkeypatch.setattr(redfish_http, "MOST_OF_SESSION", 20_000)

    def ask(session: Bmc) -> None:
        for _ in range(1000):
            session.power()

    with opened(double) as session, pytest.raises(BmcAnswerInvalid, match=r"more than 0 MiB in one session"):
        ask(session)


def test_a_long_list_is_read_only_as_far_as_it_is_used(double, monkeypatch):
    monkeypatch.setattr(redfish_tree, "MOST_MEMBERS", 3)
    double.fault("endless", ".*/EthernetInterfaces")
    with opened(double) as session:
        found = session.inspect()
    assert any("lists more than 3 members of" in one for one in found.missing), found.missing
    assert len(double.called("GET", ".*/EthernetInterfaces")) < 10


def test_what_basic_authentication_sends_is_a_secret(double):
    sent = base64.b64encode(f"drydock:{PASSWORD}".encode()).decode()
    double.fault("error", SYSTEM, value=f"Cannot handle Basic {sent}.")
    with opened(double) as session, pytest.raises(BmcRefused) as failed:
        session.power()
    assert "Cannot handle Basic" in str(failed.value)
    assert sent not in str(failed.value)


def test_a_time_to_wait_that_is_no_number_is_left_out(double):
    double.fault("unavailable", SYSTEM, value="1" * 500)
    with opened(double) as session, pytest.raises(BmcBusy) as failed:
        session.power()
    assert failed.value.retry_after is None


def test_a_page_that_is_its_own_next_is_given_up(double):
    path = f"{V1}/Systems"
    double.resources.changes[path] = lambda body: {**body, "Members@odata.nextLink": path}
    with opened(double) as session, pytest.raises(BmcAnswerInvalid, match="does not end the list"):
        session.power()


@pytest.mark.parametrize("path", [f"{V1}/?", SYSTEM, f"{V1}/SessionService/Sessions"])
def test_silence_ends_with_the_deadline(double, path):
    double.fault("silence", path)
    started = time.monotonic()
    with pytest.raises(BmcUnreachable, match=r"did not answer within 0.5 s"), opened(double, deadline=0.5) as session:
        session.power()
    assert time.monotonic() - started < 20


def test_silence_at_the_end_is_waited_for_briefly(double, monkeypatch):
    monkeypatch.setattr(redfish_client, "_CLOSING", 0.2)
    started = time.monotonic()
    double.fault("silence", method="DELETE")
    with opened(double) as session:
        session.power()
    assert time.monotonic() - started < 20


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server that is none of Redfish."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def dripping(connection: socket.socket) -> None:
    """Send one byte of headers after another, so that no single read takes long."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(3000):
        connection.sendall(b"a")
        time.sleep(0.02)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_server_that_drips_is_given_up_at_the_deadline(mode):
    with listening(dripping) as port:
        access = Redfish.Access(address="127.0.0.1", port=port, tls=mode)
        started = time.monotonic()
        with pytest.raises(BmcUnreachable):
            Redfish().open(access, {"username": "u", "password": "p"}, deadline=0.5)
        assert time.monotonic() - started < 20


def test_an_answer_without_end_is_given_up():
    def flooding(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        for _ in range(64):
            connection.sendall(b" " * (1 << 20))

    with listening(flooding) as port:
        access = Redfish.Access(address="127.0.0.1", port=port, tls="off")
        with pytest.raises(BmcAnswerInvalid, match="more than 16 MiB"):
            Redfish().open(access, {"username": "u", "password": "p"}, deadline=60)


def test_nobody_there_is_said_in_the_words_of_the_system():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    access = Redfish.Access(address="127.0.0.1", port=port)
    refused = f"The BMC at 127.0.0.1:{port} cannot be reached: Connection refused"
    with pytest.raises(BmcUnreachable, match=refused):
        Redfish().open(access, {"username": "u", "password": "p"}, deadline=5)
    with pytest.raises(BmcUnreachable, match=refused):
        Redfish().certificate(access, deadline=5)


def test_a_server_that_does_not_speak_tls_has_no_certificate():
    greeting = listening(lambda connection: connection.sendall(b"220 ready\r\n"))
    with greeting as port, pytest.raises(BmcUnreachable, match="does not speak TLS"):
        tls.presented("127.0.0.1", port, deadline=5)


@pytest.mark.parametrize(
    "body",
    [
        {"Members": None}, {"Members": "none"}, {"Members": [None, 5, "x"]}, {"Members": [{}]},
        {"Members": [{"@odata.id": 7}]}, {"Members@odata.nextLink": "", "Members": []},
    ],
)  # fmt: skip
def test_a_list_of_anything_is_read_as_far_as_it_is_one(double, body):
    double.resources.changes[f"{V1}/Systems"] = lambda _: body
    with opened(double) as session, pytest.raises(BmcError, match="has 0 systems"):
        session.power()


@pytest.mark.parametrize("junk", [None, "text", 5, [], [[]], {"x": []}], ids=repr)
def test_junk_in_any_field_is_no_crash(double, junk):
    """Every call either works or raises a BmcError, whatever the type of the fields that it reads."""
    base = f"{V1}/Systems/{double.machine.uuid}"
    for path in (base, f"{base}/BIOS", f"{base}/SecureBoot", f"{base}/VirtualMedia/Cd", f"{V1}/UpdateService"):
        double.resources.changes[path] = lambda body: {
            key: value if key in ("@odata.id", "Id") else junk for key, value in body.items()
        }
    with opened(double) as session:
        for call in (
            session.power, session.power_actions, session.boot, session.media, session.sensors, session.entries,
            session.login, session.settings, session.secure_boot, session.inspect,
            lambda: session.switch(PowerAction.ON), lambda: session.start_update("http://127.0.0.1/x"),
            lambda: session.set_boot(BootOverride(device=BootDevice.NETWORK)),
        ):  # fmt: skip
            with contextlib.suppress(BmcError):
                call()


@pytest.mark.parametrize("error", ["text", None, [], {"@Message.ExtendedInfo": "x"}, {"code": 5, "message": []}])
def test_an_error_in_any_form_is_told(double, error):
    path = f"{V1}/Systems/{double.machine.uuid}"
    double.resources.changes[path] = lambda _: {"error": error}
    with opened(double) as session, contextlib.suppress(BmcError):
        session.power()


def test_what_the_bmc_says_is_cut_and_has_no_secret(double, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "sushy")
    double.fault("error", SYSTEM, value=f"Wrong: {PASSWORD} \x1b[31m" + "x" * 1000)
    with opened(double) as session:
        token = next(iter(double.resources.sessions.values()))
        with pytest.raises(BmcRefused) as refused:
            session.power()
        double.fault("error", ".*Reset", value=f"Wrong: {token}")
        double.faults.pop(0)
        with pytest.raises(BmcRefused, match=r"Wrong: \*\*\*"):
            session.switch(PowerAction.ON)
    said = str(refused.value)
    assert "Wrong: ***" in said
    assert "\x1b" not in said
    assert len(said) < 500
    assert PASSWORD not in caplog.text
    assert token not in caplog.text


def test_a_missing_library_is_named_with_a_command_that_installs_it(monkeypatch):
    for name in list(sys.modules):
        if name.startswith(("blueprints.bmc.redfish_", "sushy")) and "sushy_tools" not in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sushy", None)
    with pytest.raises(BmcDriverNotInstalled, match=r"pip install 'sushy>=5.14'"):
        Redfish().open(Redfish.Access(address="127.0.0.1"), {"username": "u", "password": "p"}, deadline=1)
