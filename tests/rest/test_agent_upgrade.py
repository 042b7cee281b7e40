"""Upgrades of agents by order: real agents as processes, which get their programs from a real web process.

A proxy between them offers bad programs, which the server itself never does.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from drydock.demo import captured
from drydock_agent import package
from leases import agents
from leases.models import Agent, AgentOrder
from leases.operations.callers import caller
from tests.blueprints.host_peers import eventually
from tests.rest.test_agent_program import devices, server  # noqa: F401

pytestmark = pytest.mark.timeout(300)
CRASHES = "raise SystemExit('it crashes')"
NEVER = "import sys, time\nif 'hello' in sys.argv: time.sleep(600)\nprint({version!r})"
NOT_IN_TRIAL = "import sys\nprint({version!r})\nsys.exit('hello' not in sys.argv and 'check' not in sys.argv)"


def remade(version: str, main: str = "") -> bytes:
    """The program as another version, with `main` instead of its own start."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package.build().content)) as one, zipfile.ZipFile(found, "w") as other:
        (info,) = {name.split("/")[0] for name in one.namelist() if name.split("/")[0].endswith(".dist-info")}
        for name in one.namelist():
            content = one.read(name)
            if name == f"{info}/METADATA":
                content = content.replace(agents.server_version().encode(), version.encode())
            if name == "__main__.py" and main:
                content = main.replace("{version!r}", repr(version)).encode()
            other.writestr(name.replace(info, f"drydock_leases_agent-{version}.dist-info"), content)
    return found.getvalue()


class _Proxy(BaseHTTPRequestHandler):
    """Passes requests on. `server.program`, if set, is offered instead of the server's own program."""

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    do_PUT = do_POST

    def _pass_on(self, body: bytes | None) -> None:
        offered: Offered = self.server.offered
        if self.path.endswith("me/program") and offered.content:
            self._send(200, offered.content, offered.length or len(offered.content))
            return
        sent = urllib.request.Request(offered.url + self.path, body, dict(self.headers), method=self.command)
        try:
            with urllib.request.urlopen(sent, timeout=100) as found:
                status, content = found.status, found.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        if "me/orders?" in self.path and status == 200 and offered.content:
            document = json.loads(content)
            for one in document["orders"]:
                one["arguments"] |= {"sha256": offered.sha256, "version": offered.version}
            content = json.dumps(document).encode()
        self._send(status, content, len(content))

    def _send(self, status: int, content: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Offered:
    """What the proxy offers."""

    def __init__(self, url: str) -> None:
        self.url, self.content, self.version, self.sha256, self.length = url, b"", "", "", 0

    def __call__(self, content: bytes, version: str, *, sha256: str = "", length: int = 0) -> None:
        self.content, self.version, self.length = content, version, length
        self.sha256 = sha256 or hashlib.sha256(content).hexdigest()


class Installed:
    """An agent that runs from a file of an old version, on a host with a captured tree."""

    def __init__(self, folder: Path) -> None:
        self.file, self.state, self.log = folder / "program" / "drydock-agent.pyz", folder / "state", folder / "log"
        self.file.parent.mkdir()
        self.file.write_bytes(remade("0.0.9"))
        captured.write(folder / "captured")
        self.root = folder / "captured"
        self.process: subprocess.Popen[bytes] | None = None

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-I", str(self.file), *words, "--state", str(self.state), "--root", str(self.root)]

    def join(self, url: str, code: str) -> None:
        done = subprocess.run(
            self.words("join", url, "--code", "-"), input=code, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr

    def start(self, *words: str) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.words("run", *words), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(20) == 0, self.log.read_text()


@pytest.fixture
def program(tmp_path):
    made = Installed(tmp_path)
    yield made
    made.end()


@pytest.fixture
def offered(server):  # noqa: F811
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        proxy.offered = Offered(server.url)
        proxy.offered.at = f"http://127.0.0.1:{proxy.server_port}"
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy.offered
        proxy.shutdown()


@pytest.fixture
def joined(program, offered, devices, chief):  # noqa: F811
    """Return the agent, which has joined through the proxy, and the operator."""
    who = caller(chief)
    program.join(offered.at, agents.create_join_code(who, "devices", host="node-1").code)
    return Agent.objects.get(), who


def upgraded(joined) -> AgentOrder:
    """Order an upgrade, and return the order once it has ended."""
    agent, who = joined
    order = agents.order_agent(who, agent.pk, action="upgrade")
    ended = AgentOrder.objects.filter(pk=order.id, state__in=("done", "failed"))
    return eventually(ended.first, 120)


def test_the_servers_version_takes_over_after_its_hello(program, offered, joined, chief):
    agent, who = joined
    assert agents.agent(who, agent.pk).outdated
    old = program.file.read_bytes()
    program.start()
    order = upgraded(joined)
    assert (order.state, order.message) == ("done", f"Version 0.0.9 was replaced by {agents.server_version()}.")
    assert program.file.read_bytes() == agents.current_program().content
    assert program.file.with_name("drydock-agent.pyz.previous").read_bytes() == old
    agent.refresh_from_db()
    assert (agent.version, agent.outdated_since) == (agents.server_version(), None)
    assert program.process is not None
    assert program.process.poll() is None, "it is the same process"
    assert sorted(path.name for path in program.file.parent.iterdir()) == [
        "drydock-agent.pyz", "drydock-agent.pyz.previous",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_bad_program_never_takes_over(program, offered, joined):
    agent, _ = joined
    old = program.file.read_bytes()
    program.start("--trial-seconds", "3")
    wrong = {
        "crashes": (lambda: offered(remade("7", CRASHES), "7"), "it crashes"),
        "never says hello": (lambda: offered(remade("7", NEVER), "7"), "did not end within 3 seconds"),
        "another hash": (lambda: offered(remade("7"), "7", sha256="0" * 64), "and not 0000"),
        "another version": (lambda: offered(remade("8"), "7"), "has version '8', and not 7"),
        "cut": (lambda: offered(remade("7"), "7", length=10_000_000), "of 10000000 bytes arrived"),
        "too long": (lambda: offered(remade("7"), "7", length=1 << 40), "too long"),
    }
    for name, (offer, said) in wrong.items():
        offer()
        order = upgraded(joined)
        assert (order.state, said in order.message) == ("failed", True), (name, order.message)
        assert [path.name for path in program.file.parent.iterdir()] == ["drydock-agent.pyz"], name
        assert program.file.read_bytes() == old, name
    assert program.process is not None
    assert program.process.poll() is None
    offered.content = b""
    discovery = agents.order_agent(joined[1], agent.pk)
    eventually(lambda: AgentOrder.objects.get(pk=discovery.id).state == "done", 60)
    agent.refresh_from_db()
    assert agent.version == "0.0.9"


@pytest.mark.slow
def test_a_program_that_ends_after_it_took_over_is_replaced_by_the_one_before(program, offered, joined):
    """The process is started again each time that it ends, as systemd does."""
    old = program.file.read_bytes()
    # It says hello like the true one, but as a service it gets no further than to its record of the upgrade.
    main = (
        "import sys\nfrom drydock_agent.program import main\n"
        "print('a warning about a driver of another package', file=sys.stderr)\n"
        "if 'run' in sys.argv:\n    from drydock_agent.program.agent import Agent\n"
        "    Agent._scan = lambda self: sys.exit('it ends')\n"
        "sys.exit(main())"
    )
    offered(remade("7", main), "7")
    agent, who = joined
    order = agents.order_agent(who, agent.pk, action="upgrade")
    failed = AgentOrder.objects.filter(pk=order.id, state="failed")

    def started_again():
        if program.process is None or program.process.poll() is not None:
            program.start()
        return failed.first()

    ended = eventually(started_again, 120)
    assert "Version 7 ended 3 times before it said hello. Version 0.0.9 is back." in ended.message
    assert program.file.read_bytes() == old


def test_an_agent_of_pip_and_one_in_a_folder_of_root_refuse(joined, program, tmp_path):
    installed = Path(sys.executable).with_name("drydock-agent")
    agent, who = joined
    order = agents.order_agent(who, agent.pk, action="upgrade")
    words = [str(installed), "once", "--state", str(program.state), "--root", str(program.root)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = AgentOrder.objects.get(pk=order.id)
    assert (found.state, "not installed as one file" in found.message) == ("failed", True)


def test_equal_packages_give_equal_bytes_and_the_agent_of_the_server_runs(tmp_path):
    made = package.build()
    assert made == package.build()
    with zipfile.ZipFile(io.BytesIO(made.content)) as opened:
        assert {one.date_time for one in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    file = tmp_path / "a.pyz"
    file.write_bytes(made.content)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(file), "check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{made.version}\n"), done.stderr
