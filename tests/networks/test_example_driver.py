"""The how-to's example: a network driver in a package of its own is installed, found, and passes the suite."""

from __future__ import annotations

import contextlib
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest

from blueprints.networks import errors, registry
from blueprints.networks.contract import Access, Port
from blueprints.testing.networks import NetworkConformance
from interfaces.deadline import Deadline

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "switch_driver"
PAGE = ROOT / "docs" / "how-to" / "write-a-switch-driver.md"
TOKEN = "token-of-the-switch"
PORT = Port(switch="leaf-1", port="Ethernet1/12")


def _loaded() -> ModuleType:
    """The module of the example, under the name that its entry point has."""
    spec = importlib.util.spec_from_file_location("acme_switch", EXAMPLE / "acme_switch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acme_switch"] = module
    spec.loader.exec_module(module)
    return module


example = _loaded()


class Switch(http.server.BaseHTTPRequestHandler):
    """The switch; `server.answer` replaces its answers."""

    def _port(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server: Any = self.server
        time.sleep(server.delay)
        status, answer = server.answer or self._state(body, server.ports)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if status == 302:
            self.send_header("Location", server.elsewhere)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for a late answer
            self.end_headers()
            self.wfile.write(answer)

    do_GET = do_PUT = _port

    def _state(self, body: bytes, ports: dict[str, int | None]) -> tuple[int, bytes]:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, b"wrong token: " + self.headers["Authorization"].encode()
        port = unquote(self.path.removeprefix("/ports/"))
        if port not in ports:
            return 404, b"no such port"
        if body:
            ports[port] = json.loads(body)["vlan"]
        return 200, json.dumps({"vlan": ports[port]}).encode()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def switch() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Switch) as server:
        server.ports, server.answer, server.delay = {PORT.port: None}, None, 0.0  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The metadata that pip would have installed."""
    info = tmp_path / "acme_switch-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-switch\nVersion: 0.1.0\n")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    lines = [f"{name} = {value}" for name, value in project["entry-points"][registry.GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.installed.cache_clear()
    yield
    registry.installed.cache_clear()


def settings(switch: Any) -> dict[str, Any]:
    return {"switches": {"leaf-1": "127.0.0.1"}, "port": switch.server_port, "vlans": {"blue": 20, "deploy": 10}}


class TestConformance(NetworkConformance):
    driver = example.AcmeSwitch()

    @pytest.fixture(autouse=True)
    def _switch(self, switch: Any, installed: None) -> None:
        self.switch = switch

    def settings(self):
        self.switch.delay = 0.0
        return settings(self.switch)

    def silent_settings(self):
        found = self.settings()
        self.switch.delay = 1.0
        return found

    def networks(self):
        return "blue", "deploy"

    def port(self):
        return PORT.model_dump()

    def unknown_port(self):
        return {"switch": "leaf-1", "port": "Ethernet1/13"}

    def credential(self):
        return {"token": TOKEN}

    def wrong_credential(self):
        return {"token": "another secret token"}


def access(switch: Any) -> Access:
    given = example.Settings.model_validate(settings(switch))
    return Access(settings=given, credential={"token": TOKEN}, deadline=Deadline(10))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((503, b"later"), errors.NetworkBusy),
        ((404, b"no such port"), errors.NetworkUnknown),
        ((500, b"?"), errors.NetworkRefused),
        ((302, b"there"), errors.NetworkRefused),
        ((200, b"{"), errors.NetworkAnswerInvalid),
        ((200, b"[1]"), errors.NetworkAnswerInvalid),
        ((200, b"{}"), errors.NetworkAnswerInvalid),
        ((200, b'{"vlan": "all"}'), errors.NetworkAnswerInvalid),
        ((200, b'{"vlan": true}'), errors.NetworkAnswerInvalid),
    ],
)
def test_wrong_answers_become_errors(switch: Any, answer: tuple[int, bytes], error: type[errors.NetworkError]) -> None:
    switch.answer, switch.elsewhere = answer, f"http://127.0.0.1:{switch.server_port}/elsewhere"
    with pytest.raises(error):
        example.AcmeSwitch().check(access(switch), PORT)


def test_a_foreign_vlan_is_not_taken_for_none(switch: Any) -> None:
    switch.ports[PORT.port] = 77
    assert example.AcmeSwitch().check(access(switch), PORT) == {"VLAN 77"}


def test_a_switch_or_network_that_the_settings_lack_is_named(switch: Any) -> None:
    with pytest.raises(errors.NetworkUnknown, match="no switch leaf-2"):
        example.AcmeSwitch().check(access(switch), Port(switch="leaf-2", port="1"))
    with pytest.raises(errors.NetworkUnknown, match="no VLAN for the network green"):
        example.AcmeSwitch().attach(access(switch), PORT, "green")


def test_the_package_is_short_and_the_page_shows_it_as_it_is() -> None:
    page = PAGE.read_text()
    files = {name: (EXAMPLE / name).read_text() for name in ("acme_switch.py", "pyproject.toml")}
    lines = [line for text in files.values() for line in text.splitlines() if line.strip()]
    assert len(lines) < 100
    shown = [block.split("```")[0] for block in page.replace("```toml", "```python").split("```python\n")[1:]]
    assert shown[0] == files["acme_switch.py"]
    assert shown[1] == files["pyproject.toml"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_is_installed_and_found(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    subprocess.run(["cp", "-R", str(EXAMPLE), str(source)], check=True)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, source], check=True)
    program = "from blueprints.networks import registry; print(type(registry.driver('acme_switch')).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "AcmeSwitch\n"
