"""The how-to's example: a BMC driver in a package of its own is installed, found, and passes the conformance suite."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from blueprints.bmc import errors, registry
from blueprints.bmc.values import PowerAction
from tests.bmc.conformance import BmcConformance

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "bmc_driver"
PAGE = ROOT / "docs" / "how-to" / "write-a-bmc-driver.md"
TOKEN = "token-of-the-strip"


def _loaded() -> ModuleType:
    """The module of the example, under the name that its entry point has."""
    spec = importlib.util.spec_from_file_location("acme_power_strip", EXAMPLE / "acme_power_strip.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acme_power_strip"] = module
    spec.loader.exec_module(module)
    return module


example = _loaded()


class Strip(http.server.BaseHTTPRequestHandler):
    """The power strip; `server.answer` replaces its answers."""

    def _outlet(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server: Any = self.server
        status, answer = server.answer or self._state(body, server)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if status == 302:
            self.send_header("Location", server.elsewhere)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = _outlet

    def _state(self, body: bytes, server: Any) -> tuple[int, bytes]:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, b"wrong token: " + self.headers["Authorization"].encode()
        if body:
            wanted = json.loads(body)["state"]
            server.outlets[self.path] = "on" if wanted == "cycle" else wanted
        return 200, json.dumps({"state": server.outlets.get(self.path, "off")}).encode()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def strip() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strip) as server:
        server.outlets, server.answer = {}, None  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The metadata that pip would have installed."""
    info = tmp_path / "acme_power_strip-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-power-strip\nVersion: 0.1.0\n")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    lines = [f"{name} = {value}" for name, value in project["entry-points"][registry.GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.installed.cache_clear()
    yield
    registry.installed.cache_clear()


class TestConformance(BmcConformance):
    driver = example.AcmeStrip()
    session = example.Outlet

    @pytest.fixture(autouse=True)
    def _strip(self, strip: Any, installed: None) -> None:
        self.strip = strip

    def access(self):
        return {"address": "127.0.0.1", "port": self.strip.server_port, "outlet": 7}

    def credential(self):
        return {"token": TOKEN}

    def wrong_credential(self):
        return {"token": "another secret token"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((503, b"later"), errors.BmcBusy),
        ((404, b"no such outlet"), errors.BmcLacks),
        ((500, b"?"), errors.BmcRefused),
        ((302, b"there"), errors.BmcRefused),
        ((200, b"{"), errors.BmcAnswerInvalid),
        ((200, b"[1]"), errors.BmcAnswerInvalid),
        ((200, b'{"state": "maybe"}'), errors.BmcAnswerInvalid),
    ],
)
def test_wrong_answers_become_errors(strip: Any, answer: tuple[int, bytes], error: type[errors.BmcError]) -> None:
    strip.answer, strip.elsewhere = answer, f"http://127.0.0.1:{strip.server_port}/elsewhere"
    driver = example.AcmeStrip()
    access = driver.Access(address="127.0.0.1", port=strip.server_port, outlet=7)
    with driver.open(access, {"token": TOKEN}, deadline=10) as session, pytest.raises(error):
        session.power()


def test_the_package_is_short_and_the_page_shows_it_as_it_is() -> None:
    page = PAGE.read_text()
    files = {name: (EXAMPLE / name).read_text() for name in ("acme_power_strip.py", "pyproject.toml")}
    lines = [line for text in files.values() for line in text.splitlines() if line.strip()]
    assert len(lines) < 100
    shown = [block.split("```")[0] for block in page.replace("```toml", "```python").split("```python\n")[1:]]
    assert shown[0] == files["acme_power_strip.py"]
    assert shown[1] == files["pyproject.toml"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_is_installed_and_found(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    subprocess.run(["cp", "-R", str(EXAMPLE), str(source)], check=True)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, source], check=True)
    program = "from blueprints.bmc import registry; print(type(registry.driver('acme_strip')).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "AcmeStrip\n"


def test_what_the_strip_does_not_offer_is_refused(strip: Any) -> None:
    driver = example.AcmeStrip()
    access = driver.Access(address="127.0.0.1", port=strip.server_port, outlet=7)
    with driver.open(access, {"token": TOKEN}, deadline=10) as session, pytest.raises(errors.BmcLacks):
        session.switch(PowerAction.NMI)
