"""The program `drydock-agent` as a process, against a real web process."""

from __future__ import annotations

import datetime as dt
import json
import os
import ssl
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.db import connection
from django.db.models.functions import Now

from drydock.demo import captured
from leases import agents
from leases.messaging import handlers
from leases.messaging.inline import settle
from leases.models import Agent, AgentOrder, Event, Resource, Sync
from leases.operations.callers import caller
from tests.blueprints.host_peers import eventually
from tests.client.test_tls import certificate
from tests.servers import Server

pytestmark = pytest.mark.timeout(300)


class Program:
    """`drydock-agent` on a host with a captured tree."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.state, self.root, self.log = folder / "state", root, folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def words(self, *words: str) -> list[str]:
        rooted = [] if words[0] == "status" else ["--root", str(self.root)]
        installed = Path(sys.executable).with_name("drydock-agent")
        return [str(installed), *words, "--state", str(self.state), *rooted]

    def __call__(self, *words: str, code: int = 0, given: str = "") -> str:
        done = subprocess.run(self.words(*words), input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def run(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(self.words("run"), stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def end(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(20)


@pytest.fixture
def server(tmp_path, transactional_db):
    with Server.on(str(connection.settings_dict["NAME"]), tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def program(tmp_path):
    captured.write(tmp_path / "captured")
    made = Program(tmp_path, tmp_path / "captured")
    yield made
    if made.process is not None:
        made.end()


@pytest.fixture
def devices(blueprint):
    """Return a blueprint of accelerators whose hosts report, and a host."""
    pool = blueprint("hosts", kind="fake", resource_type="host", max_resources=1)
    host = Resource.objects.create(blueprint=pool, type="host", name="node-1", state="active")
    made = blueprint(
        "devices", kind="accelerators", resource_type="accelerator", config={"reports": "sent"}, max_resources=0
    )
    return made, host


@pytest.mark.slow
def test_join_report_orders_and_revocation(server, program, devices, chief):
    _, host = devices
    who = caller(chief)
    code = agents.create_join_code(who, "devices", host="node-1").code

    said = program("join", server.url, "--code", "-", given=code + "\n")
    agent = Agent.objects.get()
    assert f"as agent {agent.pk}, for {host.pk}" in said
    file = program.state / "agent.json"
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(program.state.stat().st_mode)) == (0o600, 0o700)
    token = json.loads(file.read_text())["token"]
    assert token.startswith("ddk_")
    assert token not in program("status")

    assert "not valid" in program("join", server.url, "--code", "-", given=code, code=3)
    assert json.loads(file.read_text())["token"] == token

    program("once")
    parts = Resource.objects.filter(blueprint__name="devices", gone_at=None)
    eventually(lambda: parts.filter(part_of=host.pk).exists())
    assert captured.GPU in {one.attributes.get("address") for one in parts}
    agent.refresh_from_db()
    assert (agent.problem, agent.version) == ("", agents.server_version())
    assert {one["status"] for one in agent.drivers} == {"READY"}
    assert json.loads(file.read_text())["token"] != token, "the hello renewed the token"

    program.run()
    eventually(lambda: "reports to" in program.log.read_text())
    assert "Another agent is running" in program("once", code=1)
    order = agents.order_agent(who, agent.pk)
    eventually(lambda: AgentOrder.objects.get(pk=order.id).state == "done", 60)
    assert "nothing has changed" in AgentOrder.objects.get(pk=order.id).message

    agents.revoke_agent(who, agent.pk)
    assert program.process is not None
    assert program.process.wait(60) == 3
    assert "drydock agents join" in program.log.read_text()
    assert "was revoked" in program("once", code=3)
    assert Event.objects.filter(kind="agent.refused").count() == 0


def test_sigterm_ends_it_and_a_silent_agent_is_noticed_and_returns(server, program, devices, chief):
    who = caller(chief)
    program("join", server.url, "--code", "-", given=agents.create_join_code(who, "devices", host="node-1").code)
    program.run()
    eventually(lambda: Agent.objects.exclude(reported_at=None).exists(), 60)
    parts = Resource.objects.filter(blueprint__name="devices", gone_at=None)
    eventually(parts.exists, 60)
    handlers.sweep()
    settle()
    assert program.end() == 0
    assert program.log.read_text().endswith("The agent ended.\n")

    agent = Agent.objects.get()
    Agent.objects.update(reported_at=Now() - dt.timedelta(seconds=4 * agent.interval))
    handlers.sweep()
    assert agents.agent(who, agent.pk).state == "silent"
    ready = parts.filter(state="active")
    assert {one.observed for one in ready} == {"silent"}
    assert program("once") == ""
    assert agents.agent(who, agent.pk).state == "reporting"
    assert not parts.filter(observed="silent").exists()

    stored = Sync.objects.get(place=agent.place).applied_at
    output = program.root / "drydock-tools/nvidia-smi.out"
    output.write_text(output.read_text().replace("<used>2 MiB", "<used>9000 MiB"))
    program("once")
    assert Sync.objects.get(place=agent.place).applied_at == stored, "a GPU in use changes no report"


def test_it_waits_for_a_server_that_is_away(tmp_path, program, devices, chief, transactional_db):
    database = str(connection.settings_dict["NAME"])
    code = agents.create_join_code(caller(chief), "devices", host="node-1").code
    with Server.on(database, tmp_path / "web.log") as server:
        program("join", server.url, "--code", "-", given=code)
    program.run()
    eventually(lambda: "cannot be reached" in program.log.read_text())
    assert program.log.read_text().count("cannot be reached") == 1
    assert program.process is not None
    assert program.process.poll() is None
    assert program.end() == 0
    assert "cannot be reached" in program("once", code=1)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://drydock.example.org", "Use https"),
        ("ftp://127.0.0.1", "is not the address of a server"),
        ("https://ann:pw@127.0.0.1", "no user"),
        ("http://127.0.0.1:99999", "not a number from 1 to 65535"),
        ("https://[drydock", "its host is not valid"),
        ("https://:pw@127.0.0.1", "no user"),
    ],
)
def test_an_address_to_which_no_token_may_be_sent(program, url, said):
    text = program("join", url, "--code", "-", given="ddj_x", code=1)
    assert said in text
    assert "pw" not in text


def test_messages_before_it_joined(program, tmp_path):
    assert "has not joined" in program("status", code=1)
    assert "has not joined" in program("run", code=1)
    assert "not a join code" in program("join", "http://127.0.0.1:9", "--code", "-", given="two words", code=1)
    assert "cannot be read" in program("join", "http://127.0.0.1:9", "--code", str(tmp_path / "none"), code=1)
    program.state.mkdir(exist_ok=True)
    file = program.state / "agent.json"
    file.write_text("{}")
    os.chmod(file, 0o644)
    assert "Only its owner may read it" in program("status", code=1)
    os.chmod(file, 0o600)
    assert "damaged" in program("status", code=1)


class _Elsewhere(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(307)
        self.send_header("Location", "/elsewhere\x1b[31m")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_redirects_and_foreign_certificates_get_no_token(program, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as plain:
        plain.seen = []
        threading.Thread(target=plain.serve_forever, daemon=True).start()
        said = program("join", f"http://127.0.0.1:{plain.server_port}", "--code", "-", given="ddj_x", code=1)
        plain.shutdown()
    assert "redirects to /elsewhere" in said
    assert "\x1b" not in said
    assert plain.seen == [("/api/v1/agents/hello", "Join ddj_x")]

    pem = certificate(tmp_path, "there", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as secure:
        secure.seen = []
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        threading.Thread(target=secure.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{secure.server_port}"
        assert "is not trusted" in program("join", url, "--code", "-", given="ddj_x", code=1)
        assert secure.seen == []
        assert "redirects" in program("join", url, "--code", "-", "--ca", str(pem), given="ddj_x", code=1)
        secure.shutdown()
