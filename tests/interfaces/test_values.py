"""Endpoints, keys, the registry and the fakes: no host needed."""

from __future__ import annotations

import json
import subprocess
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.core.errors import Conflict, InvalidRequest, NotFound, NotSupported
from interfaces import registry as registries
from interfaces.command import ShellCommand
from interfaces.command.fake import FakeCommand, Reply
from interfaces.command.shell import Capture
from interfaces.contract import Interface
from interfaces.deadline import Cancel, Deadline
from interfaces.endpoints import LocalEndpoint, SshEndpoint, endpoint_from_json
from interfaces.errors import Cancelled, CommandFailed, ConnectionLost, DeadlineExceeded, LeaseEnded, PathEscape
from interfaces.fake import FakeTransport
from interfaces.files import normal
from interfaces.keys import PublicKey, new_key_pair
from interfaces.registry import Registry
from tests.interfaces.conftest import always
from tests.peers import require

HOST = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB2WDJlibKBBxsWQ6X21CPm8j+pFtvHupN6yZZazUt3E host"


def test_endpoints_go_through_json_without_secrets() -> None:
    bastion = SshEndpoint(host="jump.test", user="u", host_keys=(HOST,))
    for endpoint in (
        LocalEndpoint(uid=1, gid=2, home="/home/x", environment=(("A", "b"),)),
        SshEndpoint(host="::1", port=2222, user="lease-1", host_keys=(HOST,), home="/h", bastion=bastion),
    ):
        text = json.dumps(endpoint.to_json())
        assert endpoint_from_json(json.loads(text)) == endpoint
        assert "PRIVATE" not in text
    assert SshEndpoint(host="a", port=22, user="u", host_keys=(HOST,)).known_as == "a"
    assert SshEndpoint(host="a", port=23, user="u", host_keys=(HOST,)).known_as == "[a]:23"


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "-oProxyCommand=x"}, {"host": "a b"}, {"host": ""}, {"host": "a\nb"}, {"user": "-l"}, {"user": ""},
        {"user": "a b"}, {"port": 0}, {"port": 70000}, {"host_keys": ()}, {"host_keys": ("nonsense",)},
        {"host_keys": (f"{HOST}\n{HOST}",)},
    ],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused(changes: dict[str, object]) -> None:
    values: dict[str, object] = {"host": "a", "user": "u", "host_keys": (HOST,)}
    with pytest.raises(InvalidRequest):
        SshEndpoint(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [{}, {"kind": "x"}, {"kind": "local", "uid": 0, "gid": 0, "home": "/", "x": 1}])
def test_unknown_endpoints_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        endpoint_from_json(value)
    with pytest.raises(InvalidRequest):
        LocalEndpoint(uid=-1, gid=0, home="/")
    with pytest.raises(InvalidRequest):
        LocalEndpoint(uid=1, gid=0, home="relative")


def test_a_key_pair_is_what_openssh_makes_of_it(tmp_path: Path) -> None:
    require("ssh")
    pair = new_key_pair("lease 7")
    assert "PRIVATE" not in repr(pair)
    (tmp_path / "key").write_text(pair.private)
    (tmp_path / "key").chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", str(tmp_path / "key")], capture_output=True, check=True)
    key = PublicKey.parse(pair.public)
    assert shown.stdout.decode().split()[:2] == [key.kind, key.body]
    (tmp_path / "key.pub").write_text(pair.public)
    shown = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "key.pub")], capture_output=True, check=True)
    assert shown.stdout.decode().split()[1] == key.fingerprint
    assert key.comment == "lease 7"


@pytest.mark.parametrize(
    "line",
    [
        "", "ssh-ed25519", "ssh-ed25519 AAAA", 'command="x" ' + HOST, HOST + "\n" + HOST, "ssh-rsa " + HOST.split()[1],
        HOST + ' $(x)`"', HOST + "\rssh-rsa x", "ssh-ed25519 " + "A" * 10000,
    ],
)  # fmt: skip
def test_what_is_no_public_key_is_refused(line: str) -> None:
    with pytest.raises(InvalidRequest):
        PublicKey.parse(line)


def test_a_comment_cannot_break_out() -> None:
    with pytest.raises(InvalidRequest):
        new_key_pair("x\nssh-ed25519 AAAA")


@given(st.text(alphabet="ab./\\ \0", max_size=12))
def test_a_normal_path_stays_below(path: str) -> None:
    try:
        found = normal(path)
    except (PathEscape, InvalidRequest):
        return
    assert not found.startswith("/")
    assert not found.endswith("/")
    assert not set(found.split("/")) & {".", ".."}
    assert normal(found) == found


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_a_capture_keeps_both_ends(parts: list[bytes], limit: int) -> None:
    capture, whole = Capture(limit), b"".join(parts)
    for part in parts:
        capture.add(part)
    assert capture.truncated == (len(whole) > limit)
    if not capture.truncated:
        assert capture.content == whole
        return
    head, tail = whole[: (limit + 1) // 2], whole[len(whole) - limit // 2 :]
    mark = f"\n[... {len(whole) - limit} bytes omitted ...]\n".encode()
    assert capture.content == head + mark + tail


class Ticker(Interface):
    name: ClassVar[str] = "ticker"


class OtherTicker(Interface):
    name: ClassVar[str] = "ticker"


def test_the_registry_knows_ours_and_opens_them() -> None:
    registry = Registry()
    assert registry.names() == ["command", "console", "dpu_services", "filesystem", "httpd"]
    opened = registry.open("command", FakeTransport(), still_mine=always, options={"jobs_folder": "j"})
    assert isinstance(opened, ShellCommand)
    with pytest.raises(InvalidRequest):
        registry.open("command", FakeTransport(), still_mine=always, options={"unknown": 1})
    with pytest.raises(NotFound, match="command, console, dpu_services, filesystem, httpd"):
        registry.get("nothing")


def test_a_name_is_given_once() -> None:
    registry = Registry()
    assert registry.register(Ticker) is registry.register(Ticker) is registry.get("ticker")
    with pytest.raises(Conflict):
        registry.register(OtherTicker)
    for wrong in (object, Interface, "x"):
        with pytest.raises(InvalidRequest):
            registry.register(wrong)  # type: ignore[arg-type]


def test_other_packages_give_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(name: str, target: str = "Ticker") -> object:
        point = EntryPoint(name=name, value=f"{__name__}:{target}", group=registries.GROUP)
        return lambda group: [point] if group == registries.GROUP else []

    monkeypatch.setattr(registries, "entry_points", points("ticker"))
    assert Registry().get("ticker") is Ticker
    monkeypatch.setattr(registries, "entry_points", points("other"))
    with pytest.raises(InvalidRequest):
        Registry().names()
    monkeypatch.setattr(Ticker, "name", "command")
    monkeypatch.setattr(registries, "entry_points", points("command"))
    with pytest.raises(Conflict):
        Registry().names()


def test_a_deadline_names_what_took_too_long() -> None:
    deadline = Deadline(0)
    assert (deadline.expired, deadline.remaining) == (True, 0)
    with pytest.raises(DeadlineExceeded, match="The work took longer than 0 s"):
        deadline.check("The work")


def test_the_fake_command_answers_from_its_script() -> None:
    command = FakeCommand()
    command.reply("^uname", Reply(stdout=b"Linux\n"))
    command.reply("flaky", Reply(error=ConnectionLost()), Reply(exit_code=2, stderr=b"no"))
    assert command.run(["uname", "-a"], env={"A": "b"}, cwd="x", stdin=b"i").text == "Linux\n"
    assert (command.calls[0].words, command.calls[0].cwd) == (["uname", "-a"], "x")
    with pytest.raises(ConnectionLost):
        command.run("flaky")
    for _ in range(2):
        with pytest.raises(CommandFailed, match="no"):
            command.check("flaky")
    with pytest.raises(CommandFailed):
        list(command.stream("flaky"))
    assert [each.content for each in command.stream("uname")] == [b"Linux\n"]
    assert command.run("anything else").ok
    cancel = Cancel()
    cancel.cancel()
    with pytest.raises(Cancelled):
        command.run("x", cancel=cancel)


def test_the_fakes_refuse_when_the_lease_is_over() -> None:
    over = threading.Event()

    def still_mine() -> None:
        if over.is_set():
            raise LeaseEnded

    command = FakeCommand(still_mine=still_mine)
    over.set()
    for act in (lambda: command.run("x"), command.jobs.list, lambda: command.jobs.status("x")):
        with pytest.raises(LeaseEnded):
            act()
    assert command.calls == []


def test_a_fake_transport_runs_nothing() -> None:
    with pytest.raises(NotSupported):
        ShellCommand(FakeTransport(), still_mine=always).run("true")
