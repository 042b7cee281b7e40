"""Separate drivers that hang, lie, end or are impostors: nobody waits for them, and nothing else is lost."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from drydock_agent import Device, Drivers, Findings, MemoryTree, scan
from drydock_agent.cyborg import DriverHello
from drydock_agent.messages import HardwareReport
from drydock_agent.program.addresses import Address
from drydock_agent.program.drivers import SeparateDrivers, secret_in
from drydock_agent.program.errors import AgentError
from drydock_agent.program.listener import Listener
from drydock_agent.wire import Malformed

SECRET = "a-secret-of-the-drivers"
UUID = "8e45a2ea-5364-4b0d-a252-bf8becaa606e"


def entry(uuid=UUID, **changes):
    found = {
        "uuid": uuid, "acc_specs": {"device_type": "CRYPTO", "acc_capability": {}},
        "acc_status": {"setup_required": False, "reboot_required": False},
    }  # fmt: skip
    return found | changes


class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.say(202, b"{}")

    def do_GET(self):
        self.say(200, self.server.content)

    def say(self, status, content):
        self.server.seen.append(self.headers["Authorization"])
        if self.server.hangs:
            self.server.over.wait(20)
            return
        self.send_response(status)
        self.end_headers()
        for n in range(len(content)) if self.server.slow else (0,):
            self.wfile.write(content[n : n + 1] if self.server.slow else content)
            self.wfile.flush()
            if self.server.slow and self.server.over.wait(0.05):
                return

    def log_message(self, *_):
        pass


@pytest.fixture
def driver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads, server.block_on_close = True, False
    server.content, server.seen, server.hangs, server.slow = (
        json.dumps({"hardware": [entry()]}).encode(),
        [],
        False,
        False,
    )
    server.over = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def separate():
    return SeparateDrivers(SECRET, kept=900.0, patience=5.0, seconds=5.0)


def register(separate, port, **changes):
    said = {"status": "READY", "endpoint": f"127.0.0.1:{port}", "type": "CRYPTO", "name": "crypto-card"} | changes
    return separate.hello(said)


def found(separate):
    """The ids of the devices of a scan, and its warnings."""
    separate.ask()
    return seen(separate)


def seen(separate):
    hardware = scan(MemoryTree({}), drivers=separate.with_own(Drivers(drivers=())))
    return [one.id for one in hardware.devices], " ".join(f"{one.subject}: {one.message}" for one in hardware.warnings)


def test_the_hello_of_the_source_document_is_enough(separate, driver):
    said = {"status": "READY", "endpoint": f"localhost:{driver.server_port}", "type": "CRYPTO"}
    assert separate.hello(said) == (200, {"version": 1, "status": "READY"})
    assert DriverHello.from_json(said).types == ("qat",)
    assert found(separate) == ([UUID], "")
    assert set(driver.seen) == {f"Bearer {SECRET}"}


def test_an_id_that_the_server_refuses_takes_nothing_of_the_other_drivers(separate, driver):
    class Own:
        name, classes, paths, tools = "own", ("gpu",), (), {}

        def read(self, tree):
            return Findings(devices=(Device(id="0000:01:00.0"),))

    register(separate, driver.server_port)
    for id in ("x" * 201, "two\nlines"):
        device = {"id": id, "readiness": "ready"}
        specs = {"device_type": "CRYPTO", "acc_capability": {"device": device}}
        driver.content = json.dumps({"hardware": [entry(acc_specs=specs)]}).encode()
        separate.ask()
        hardware = scan(MemoryTree({}), drivers=separate.with_own(Drivers(drivers=(Own(),))))
        HardwareReport(sequence=1, boot_id="", time="2026-01-01T00:00:00Z", hardware=hardware)
        assert [one.id for one in hardware.devices] == ["0000:01:00.0"]
        assert "more than 200 characters, or unprintable ones" in hardware.warnings[0].message


def test_a_driver_that_hangs_is_waited_for_once_and_its_devices_stay(driver):
    separate = SeparateDrivers(SECRET, patience=0.3, seconds=3.0)
    register(separate, driver.server_port)
    separate._patience = 5.0
    assert found(separate) == ([UUID], "")
    separate._patience, driver.hangs = 0.3, True
    ids, warning = found(separate)
    assert ids == [UUID]
    assert "driver crypto-card: It did not answer within 0.3 seconds." in warning
    assert "is still reported" in warning
    separate._patience = 60.0
    began = time.monotonic()
    assert found(separate)[0] == [UUID]
    assert time.monotonic() - began < 30, "nobody waits for it again"
    separate._kept = 0.0
    ids, warning = seen(separate)
    assert ids == []
    assert "not reported any more" in warning


def test_a_driver_that_answers_one_byte_at_a_time_is_cut_off(driver):
    separate = SeparateDrivers(SECRET, patience=30.0, seconds=0.5)
    driver.slow = True
    register(separate, driver.server_port)
    ids, warning = found(separate)
    assert ids == []
    assert "driver crypto-card: The driver at" in warning


LIES = {
    "no JSON": (b"{", "not"),
    "another version": (json.dumps({"version": 2, "hardware": []}).encode(), "version"),
    "an unknown field": (json.dumps({"hardware": [], "extra": 1}).encode(), "extra"),
    "one device twice": (json.dumps({"hardware": [entry(), entry()]}).encode(), "same device"),
    "contradictory spellings": (
        json.dumps({"hardware": [entry(acc_status={
            "setup_required": False, "reboot_required": True, "reboot_equired": False,
        })]}).encode(), "spellings contradict",
    ),
    "more bytes than allowed": (b" " * (2 << 20), "more than 1048576 bytes"),
    "a NUL": (
        json.dumps({"hardware": [entry(acc_specs={"device_type": "GPU", "acc_capability": {
            "device": {"id": "a", "name": "b\0c", "readiness": "ready"},
        }})]}).encode(), "NUL",
    ),
    "half a character": (
        json.dumps({"hardware": [entry(acc_specs={"device_type": "GPU", "acc_capability": {
            "device": {"id": "a", "name": "b\ud800", "readiness": "ready"},
        }})]}).encode(), "driver crypto-card",
    ),
    "a number that no column holds": (
        json.dumps({"hardware": [entry(acc_specs={"device_type": "GPU", "acc_capability": {
            "device": {"id": "a", "memory_mib": 1 << 70, "readiness": "ready"},
        }})]}).encode(), "the number is too large",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_becomes_a_warning_and_the_last_answer_stays(separate, driver, lie):
    register(separate, driver.server_port)
    assert found(separate) == ([UUID], "")
    driver.content, said = LIES[lie]
    ids, warning = found(separate)
    assert ids == [UUID]
    assert said in warning


def test_drivers_together_stay_below_what_the_server_accepts(separate, driver):
    many = [entry(f"{n:08d}-5364-4b0d-a252-bf8becaa606e") for n in range(400)]
    driver.content = json.dumps({"hardware": many}).encode()
    for n in range(4):
        register(separate, driver.server_port, name=f"driver-{n}")
    _, warning = found(separate)
    assert "driver driver-3: It reports too much" in warning
    assert "driver driver-0" not in warning


def test_at_most_twenty_drivers_register(separate):
    for n in range(20):
        register(separate, 1, name=f"driver-{n}")
    with pytest.raises(Malformed, match="20 drivers"):
        register(separate, 1, name="one-more")
    register(separate, 2, name="driver-3")


def test_the_secret_goes_to_no_program_of_another_account(separate):
    """An impostor that took the port of a driver that ended learns nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root starts programs as another account")
    listens = (
        "import socket, sys, time\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept(); c.settimeout(5)\n"
        "print('read', c.recv(100), flush=True)\n"
    )
    python = "/usr/bin/python3"  # the interpreter of the tests may be closed to other accounts
    if not os.path.exists(python):
        pytest.skip("no Python that other accounts may run")
    command = [python, "-I", "-c", listens]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user=65534, cwd="/") as impostor:
        try:
            port = int(impostor.stdout.readline())
            register(separate, port)
            ids, warning = found(separate)
            assert ids == []
            assert "belongs to another account" in warning
            assert impostor.stdout.readline() == "read b''\n"
        finally:
            if impostor.poll() is None:
                impostor.send_signal(signal.SIGKILL)


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "secret"
    made = secret_in(file)
    assert secret_in(file) == made
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(AgentError, match="Only its owner may read it"):
        secret_in(file)
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(AgentError, match="at least 16 characters"):
        secret_in(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(AgentError, match="cannot be used"):
        secret_in(tmp_path / "link")


def test_callers_that_send_nothing_do_not_keep_others_out(tmp_path):
    address = Address.parse(f"unix:{tmp_path}/a")
    listener = Listener(address, {("POST", "/hello"): lambda document: (200, {})}, secret=lambda: SECRET, seconds=0.5)

    def connected():
        opened = socket.socket(socket.AF_UNIX)
        opened.settimeout(20)
        opened.connect(address.path)
        return opened

    with listener.serving():
        idle = [connected() for _ in range(16)]
        for one in idle:
            assert one.recv(1) == b"", "its time is over"
            one.close()
        with connected() as opened:
            opened.sendall(f"POST /hello HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode())
            assert b" 200 " in opened.recv(1000)
    assert not os.path.exists(address.path)


def test_without_a_secret_no_one_is_accepted(tmp_path):
    address = Address.parse(f"unix:{tmp_path}/a")
    listener = Listener(address, {("GET", "/hardware"): lambda document: (200, {})}, secret=lambda: "")
    with listener.serving(), socket.socket(socket.AF_UNIX) as opened:
        opened.connect(address.path)
        opened.sendall(b"GET /hardware HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n")
        assert b" 401 " in opened.recv(1000)
