"""The source document's HTTP flows, end to end: drivers say hello to an agent, and the server dials in.

Drivers, the agent and the web process are real; the hardware is a captured tree.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import stat
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from blueprints.models import Blueprint
from drydock.core.errors import Conflict, NotAllowed
from drydock.demo import captured
from drydock_agent import Device, Hardware, Host, Readiness
from drydock_agent.cyborg import from_document, to_document
from leases import agents
from leases.agents import endpoints
from leases.messaging import handlers, hints
from leases.messaging.inline import settle
from leases.models import Agent, AgentOrder, Event, Resource
from leases.operations import attention
from leases.operations.callers import caller
from tests.blueprints.host_peers import eventually
from tests.client.test_tls import certificate
from tests.rest.test_agent_program import Program, server  # noqa: F401

pytestmark = pytest.mark.timeout(300)

DOCUMENT = {
    "hardware": [
        {
            "uuid": "8e45a2ea-5364-4b0d-a252-bf8becaa606e",
            "acc_specs": {
                "remote": 0, "num": 1, "device_type": "CRYPTO",
                "acc_capability": {"num": 2, "ipsec": {"aes": {"3des": 50, "num": 1}}},
            },
            "acc_status": {"setup_required": True, "reboot_equired": False},
        }
    ]
}  # fmt: skip
"""The response in the source document, with its missing commas added."""
UUID = DOCUMENT["hardware"][0]["uuid"]


class _Driver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self._answer(202, {"status": "IN-PROGRESS"})

    def do_GET(self) -> None:
        self._answer(200, self.server.document)

    def _answer(self, status: int, document: object) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.hangs.is_set():
            time.sleep(30)
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Driver:
    """A driver as a program of its own would be: it listens on loopback, and says hello to the agent."""

    def __init__(self, document: object = DOCUMENT) -> None:
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _Driver)
        self.http.daemon_threads = True
        self.http.document, self.http.asked, self.http.hangs = document, [], threading.Event()
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.http.server_port}"

    def hello(self, path: Path, secret: str, **changes: object) -> int:
        said = {"status": "READY", "endpoint": self.endpoint, "type": "CRYPTO"} | changes
        return ask(path, "POST", "/hello", secret, said)[0]

    def end(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def ask(
    path: Path, method: str, target: str, secret: str, document: object = None, headers: dict[str, str] | None = None
) -> tuple[int, object]:
    """Send a request to a Unix socket."""
    opened = http.client.HTTPConnection("localhost", timeout=20)
    opened.sock = socket.socket(socket.AF_UNIX)
    opened.sock.settimeout(20)
    opened.sock.connect(str(path))
    try:
        body = None if document is None else json.dumps(document)
        opened.request(method, target, body, {"Authorization": f"Bearer {secret}", **(headers or {})})
        response = opened.getresponse()
        return response.status, json.loads(response.read())
    finally:
        opened.close()


class Listening(Program):
    """`drydock-agent run`, which also takes drivers and listens."""

    port = 0

    def serve(self, *words: str) -> None:
        self.drivers = self.state / "drivers.sock"
        more = ["--drivers", f"unix:{self.drivers}", *words]
        before = self.log.read_text().count("reports to") if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.words("run"), *more], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        eventually(lambda: self.log.read_text().count("reports to") > before, 60)

    def listen(self, *words: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = self.port or probe.getsockname()[1]
        self.serve("--listen", f"127.0.0.1:{self.port}", *words)
        return f"127.0.0.1:{self.port}"

    @property
    def secret(self) -> str:
        return (self.state / "driver-secret").read_text().strip()


@pytest.fixture
def program(tmp_path):
    captured.write(tmp_path / "captured")
    made = Listening(tmp_path, tmp_path / "captured")
    yield made
    if made.process is not None:
        made.end()


@pytest.fixture
def who(chief):
    return caller(chief)


@pytest.fixture
def joined(server, program, blueprint, until, who, soon):  # noqa: F811
    """Join for this machine, which is a host of kind local_host, so that 127.0.0.1 is an address of the host."""
    blueprint("here", kind="local_host", resource_type="host", config={"min_free_mib": 1}, max_resources=1)
    host = Resource.objects.create(
        blueprint=Blueprint.objects.get(name="here"), type="host", name="node-1", state="active"
    )
    blueprint("devices", kind="accelerators", resource_type="accelerator", config={"reports": "sent"}, max_resources=0)
    code = agents.create_join_code(who, "devices", host="node-1").code
    program("join", server.url, "--code", "-", given=code)
    return host


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.end()


def discovered(who) -> str:
    """Order a discovery, and return its result."""
    order = agents.order_agent(who, Agent.objects.get().pk)
    return eventually(AgentOrder.objects.filter(pk=order.id, state__in=("done", "failed")).first, 60).message


def test_a_driver_says_hello_and_its_hardware_is_merged_with_the_agents_own(joined, program, driver, who):
    program.serve()
    assert stat.S_IMODE((program.state / "driver-secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(program.drivers.stat().st_mode) == 0o600
    assert driver.hello(program.drivers, "wrong-secret-of-a-stranger") == 401
    assert driver.hello(program.drivers, program.secret) == 200
    before = len(driver.http.asked)
    assert "Reported" in discovered(who)
    asked = driver.http.asked[before:]
    assert asked[:2] == [
        ("POST", "/discovery", f"Bearer {program.secret}"),
        ("GET", "/hardware", f"Bearer {program.secret}"),
    ]
    parts = Resource.objects.filter(blueprint__name="devices")
    gpu = eventually(parts.filter(attributes__address=captured.GPU).first, 30)
    assert "driver-7" not in str(gpu.attributes)

    # A driver may know more about a device that the agent found itself.
    known = Device(id=captured.GPU, firmware={"vbios": "driver-7"}, device_class="gpu", readiness=Readiness.READY)
    driver.http.document = to_document(Hardware(host=Host(), devices=(known,)))
    assert "the server stored them" in discovered(who)
    settle()
    gpu.refresh_from_db()
    assert "driver-7" in str(gpu.attributes)
    assert gpu.state == "active"

    for wrong in (
        {"endpoint": "10.0.0.1:80"}, {"endpoint": "example.org:80"}, {"endpoint": "localhost"}, {"status": "NO"},
        {"type": []}, {"extra": 1}, {"endpoint": "http://127.0.0.1:1"},
    ):  # fmt: skip
        assert driver.hello(program.drivers, program.secret, **wrong) == 400, wrong
    assert ask(program.drivers, "GET", "/hello", program.secret)[0] == 405
    assert ask(program.drivers, "GET", "/hardware", program.secret)[0] == 404
    large = {"Content-Length": "2000000"}
    assert ask(program.drivers, "POST", "/hello", program.secret, headers=large)[0] == 400


def test_the_server_dials_in_with_its_secret_and_pins_the_certificate(joined, program, driver, who):
    endpoint = program.listen()
    agent = eventually(Agent.objects.exclude(endpoint="").first, 60)
    assert (agent.endpoint, agent.offered, len(agent.fingerprint)) == (endpoint, {}, 64)
    assert agent.fingerprint in program("status")
    assert driver.hello(program.drivers, program.secret) == 200
    agent = eventually(Agent.objects.exclude(reported_at=None).first, 60)

    def conductor(method, path, secret):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        opened = http.client.HTTPSConnection("127.0.0.1", program.port, timeout=20, context=context)
        opened.request(method, path, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        response = opened.getresponse()
        content = response.read()
        opened.close()
        return response.status, json.loads(content)

    secret = json.loads((program.state / "agent.json").read_text())["secret"]
    assert secret == agent.secrets["current"]
    for wrong in ("", "wrong", program.secret, secret + "x"):
        assert conductor("GET", "/hardware", wrong)[0] == 401
        assert conductor("POST", "/discovery", wrong)[0] == 401
    assert conductor("POST", "/hello", secret)[0] == 404

    endpoints.start_discovery(agent)

    def across_all_drivers():
        status, document = conductor("GET", "/hardware", secret)
        assert status == 200
        found = {one.id: one for one in from_document(document)}
        return document if UUID in found and captured.GPU in found and "status" not in document else None

    document = eventually(across_all_drivers, 60)
    (entry,) = [one for one in document["hardware"] if one["acc_specs"]["device_type"] == "CRYPTO"]
    assert entry["acc_status"] == {"setup_required": True, "reboot_required": False, "reboot_equired": False}

    # The agent is waiting for orders. Dialling in ends the wait, and its answer comes through the order as always.
    order = agents.order_agent(who, agent.pk)
    assert ("call_agent", (agent.pk,)) in hints._local.collected
    handlers.HANDLERS["call_agent"](agent.pk)
    eventually(lambda: AgentOrder.objects.get(pk=order.id).state == "done", 60)
    assert Agent.objects.get().call_problem == ""

    agent.secrets = {"current": "newer-one-that-got-lost", "before": secret}
    endpoints.start_discovery(agent)
    agent.secrets = {"current": "wrong", "before": ""}
    with pytest.raises(endpoints.NotCalled, match="status 401"):
        endpoints.start_discovery(agent)
    agent.fingerprint = "0" * 64
    with pytest.raises(endpoints.NotCalled, match="another certificate than the confirmed one"):
        endpoints.start_discovery(agent)


def test_another_certificate_is_shown_and_waits_for_an_operator(joined, program, who, owner, tmp_path):
    program.listen()
    first = eventually(Agent.objects.exclude(endpoint="").first, 60)
    program.end()
    pem = certificate(tmp_path, "new", "127.0.0.1")
    program.listen("--certificate", str(pem), "--key", str(pem))
    changed = eventually(Agent.objects.exclude(offered={}).first, 60)
    assert changed.fingerprint == first.fingerprint
    new = changed.offered["fingerprint"]
    assert new == endpoints.fingerprint(pem.read_text().partition("-----BEGIN PRIVATE")[0])
    (shown,) = [one for one in attention.needed(who) if one.what == "agent_certificate"]
    assert new in shown.message
    assert Event.objects.filter(kind="agent.endpoint_announced").count() == 1
    agents.order_agent(who, changed.pk)
    assert "call_agent" not in {name for name, _ in hints._local.collected}, "it is not called"
    handlers.HANDLERS["call_agent"](changed.pk)
    assert Agent.objects.get().call_problem == ""

    with pytest.raises(NotAllowed):
        agents.confirm_agent(caller(owner), changed.pk, new)
    with pytest.raises(Conflict, match="has not announced"):
        agents.confirm_agent(who, changed.pk, first.fingerprint[::-1])
    info = agents.confirm_agent(who, changed.pk, ":".join(new[n : n + 2] for n in range(0, 64, 2)).upper())
    assert (info.fingerprint, info.offered_fingerprint, info.message) == (new, "", "")
    endpoints.start_discovery(Agent.objects.get())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "unix:/tmp/x"), "cannot reach a Unix socket"),
        (("--listen", "0.0.0.0:0"), "is not an address such as"),
        (("--listen", "0.0.0.0:1337"), "Name one: --announce"),
        (("--announce", "a:1"), "belong to --listen"),
        (("--drivers", "0.0.0.0:1337"), "drivers are on this machine"),
        (("--drivers", "127.0.0.1:70000"), "is not an address such as"),
        (("--listen", "127.0.0.1:1", "--certificate", "/nonexistent"), "are not a certificate and its key"),
    ],
)
def test_addresses_that_are_refused(program, words, said):
    done = subprocess.run(
        [*program.words("run"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert said in done.stderr


def test_without_openssl_the_agent_asks_for_a_certificate(program, tmp_path):
    done = subprocess.run(
        [*program.words("run"), "--listen", "127.0.0.1:1337"], capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": str(tmp_path)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no openssl to make a certificate with. Install it, or give" in done.stderr
