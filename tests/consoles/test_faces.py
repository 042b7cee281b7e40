"""The console over REST, on the command line in a terminal, and on the page of the lease."""

from __future__ import annotations

import base64
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from blueprints.fake import openers
from drydock.cli.console.terminal import Escape
from drydock_client.http import HttpClient
from interfaces.console.fake import FakeConsole
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.models import Lease
from leases.operations.callers import caller
from leases.rest import tokens

pytestmark = pytest.mark.timeout(400, func_only=True)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lease(blueprint: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., Any]) -> Lease:
    blueprint(config={"capacity": {"slots": 1}, "lacks": ["consoles"]})
    found: Lease = until(ask(exclusive=True), state="active")
    return found


@pytest.fixture
def machine(lease: Lease) -> FakeConsole:
    return openers.fakes(specs.key("l", lease.pk)).console


@pytest.fixture
def secret(owner: User) -> Callable[..., str]:
    def make(user: User = owner, scope: str = "lease") -> str:
        return tokens.create(caller(user), name="test", scope=scope)[1]

    return make


class Api:
    """A program that speaks to the REST API."""

    def __init__(self, secret: str) -> None:
        self.browser, self.headers = Browser(raise_request_exception=False), {"Authorization": f"Bearer {secret}"}

    def __call__(self, method: str, path: str, body: Any = None, *, code: int = 200) -> Any:
        found = self.browser.generic(
            method, f"/api/v1/{path}", b"" if body is None else json.dumps(body),
            content_type="application/json", headers=self.headers,
        )  # fmt: skip
        assert found.status_code == code, (found.status_code, found.content)
        return found.json() if found.content else None


def test_a_program_attaches_types_reads_and_detaches_over_rest(lease, machine, secret):
    api = Api(secret())
    part = api("POST", f"leases/{lease.pk}/console/attach", {})
    assert (part["writing"], part["writer"], part["output"]) == (True, "ada", "")
    session, typed, read = part["session"], base64.b64encode(b"\x00\xff~").decode(), b""
    for code in (204, 204):
        body = {"session": session, "sequence": 1, "content": typed}
        api("POST", f"leases/{lease.pk}/console/input", body, code=code)
    end = time.monotonic() + 30
    while read != b"\x00\xff~":
        assert time.monotonic() < end
        query = f"offset={part['next_offset']}&session={session}&revision={part['revision']}&wait=0.5"
        part = api("GET", f"leases/{lease.pk}/console/output?{query}")
        read += base64.b64decode(part["output"])
    assert bytes(machine.typed) == b"\x00\xff~"
    api("POST", f"leases/{lease.pk}/console/detach", {"session": session}, code=204)
    api("POST", f"leases/{lease.pk}/console/input", {"session": session, "sequence": 2, "content": typed}, code=409)


def test_what_rest_refuses(lease, secret):
    api, reader, bob = Api(secret()), Api(secret(scope="read")), Api(secret(User.objects.create_user("bob")))
    session = api("POST", f"leases/{lease.pk}/console/attach", {})["session"]
    at = f"leases/{lease.pk}/console"
    for body in ({"take": 1}, {"session": "x"}, {"more": 1}, {"read_only": True, "take": True}):
        api("POST", f"{at}/attach", body, code=400)
    for content in ("", "!", base64.b64encode(b"x" * 8193).decode()):
        api("POST", f"{at}/input", {"session": session, "sequence": 1, "content": content}, code=400)
    for query in ("offset=-1", "wait=-1", "wait=99999", "limit=0", "session=x", "unknown=1"):
        api("GET", f"{at}/output?{query}", code=400)
    for call in (("POST", f"{at}/attach", {}), ("GET", f"{at}/output"), ("POST", f"{at}/detach", {"session": session})):
        reader(*call, code=403)
        bob(*call, code=404)
    release.release(lease.pk, actor="ada")
    for call in (("POST", f"{at}/attach", {}), ("GET", f"{at}/output"), ("POST", at)):
        assert api(*call, code=409)["code"] == "lease_ended"


def test_the_page_of_a_lease_shows_the_record_and_nothing_in_it_runs(lease, machine, attach, client):
    client.force_login(User.objects.create_superuser("chief"))
    page = f"/admin/leases/lease/{lease.pk}/change/"
    assert "Attach: drydock console" not in client.get(page).content.decode()
    one = attach(lease)
    one.until(state="open")
    machine.print(b"\x1b[31m<script>alert(1)</script>\x1b]0;hijacked\x07 login: \xe2\x80\xae")
    one.until(b"login: \xe2\x80\xae")
    shown = client.get(page).content.decode()
    assert f"Attach: drydock console {lease.pk} --attach" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; login: \\u202e" in shown
    assert "hijacked" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("typed", "sent", "ended"),
    [
        ([b"~."], b"", True), ([b"\r", b"~", b"."], b"\r", True), ([b"a~."], b"a~.", False), ([b"~~x"], b"~x", False),
        ([b"~x~."], b"~x~.", False), ([b"\r~\r~."], b"\r~\r", True), ([b"x\n~.gone"], b"x\n", True),
        ([bytes([n]) for n in range(256)], bytes(range(256)), False),
    ],
)  # fmt: skip
def test_the_escape_sequence_is_found_after_a_line_break_only(typed, sent, ended):
    escape = Escape()
    assert (b"".join(escape.feed(part) for part in typed), escape.ended) == (sent, ended)


class Terminal:
    """The program `drydock console` on a pseudo terminal."""

    def __init__(self, url: str, secret: str, home: Path, *words: object) -> None:
        self.ours, theirs = pty.openpty()
        environment = {**os.environ, "HOME": str(home), "DRYDOCK_TOKEN": secret, "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drydock", "--server", url, "console", *map(str, words)],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.shown = b""

    def until(self, expected: bytes, seconds: float = 120) -> bytes:
        end = time.monotonic() + seconds
        while expected not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.ours, 1 << 16)
                except OSError:
                    assert expected in self.shown, self.shown
        return self.shown

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def ends(self, code: int) -> None:
        end = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.ours, 1 << 16)
                except OSError:
                    time.sleep(0.05)
        assert self.process.wait(1) == code, self.shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(live_server: Any, secret: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: object, user: User | None = None) -> Terminal:
        made.append(Terminal(live_server.url, secret(user, "operate") if user else secret(), tmp_path, *words))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_terminal_is_attached_and_taken_over_from(lease, machine, terminal):
    chief = User.objects.create_user("chief", is_staff=True)
    first = terminal(lease.pk, "--attach")
    first.until(b"Enter ~ . ends")
    first.type(b"\x03ls\x1b[A")
    first.until(b"\x03ls\x1b[A")
    machine.print(b"\x1b[2J\x1b]0;title\x07raw\xff")
    first.until(b"\x1b[2J\x1b]0;title\x07raw\xff")
    second = terminal(lease.pk, "--attach", "--take", user=chief)
    second.until(b"Enter ~ . ends")
    first.until(b"[drydock: chief took the console over; you only read now]")
    first.type(b"lost")
    first.until(b"[drydock: chief types at this console now.]")
    second.type(b"mine")
    for one in (first, second):
        one.until(b"mine")
    second.type(b"\r~.")
    second.ends(0)
    assert b"Detached." in second.shown
    first.until(b"[drydock: nobody types now]")
    shown = terminal(lease.pk)
    shown.ends(0)
    assert b"raw" in shown.shown
    assert b"\x1b" not in shown.shown
    assert b"Attached: ada." in shown.shown
    release.release(lease.pk, actor="ada")
    first.ends(4)
    assert b"has ended" in first.shown
    assert bytes(machine.typed) == b"\x03ls\x1b[Amine\r"


def test_the_client_of_a_program_types_and_reads(lease, machine, secret, live_server):
    client = HttpClient(live_server.url, secret())
    part = client.attach_console(lease.pk)
    client.write_console(lease.pk, session=part.session, sequence=part.typed + 1, content=b"\x00hi")
    read, end = b"", time.monotonic() + 30
    while read != b"\x00hi":
        assert time.monotonic() < end
        part = client.read_console(
            lease.pk, offset=part.next_offset, session=part.session, revision=part.revision, wait=1
        )
        read += base64.b64decode(part.output)
    client.detach_console(lease.pk, session=part.session)
    assert client.console(lease.pk).source == "record"
    client.close()
