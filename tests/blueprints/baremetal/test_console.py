"""The serial console of a bare-metal host: that of its BMC, or the one that its registration names."""

from __future__ import annotations

import getpass
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from pydantic import ValidationError

from blueprints.baremetal.registration import Registration
from blueprints.models import Blueprint, Credential
from drydock.core.errors import InvalidRequest, NotSupported
from interfaces.errors import LeaseEnded
from interfaces.keys import new_key_pair
from leases import consoles
from leases.consoles import attachments, pump, record
from leases.engine.lifecycle import release
from leases.models import Console, ConsoleOutput, Event, Resource
from leases.operations import resources
from leases.operations.callers import Caller
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.bmc.ipmi_double import PASSWORD, USER, Double, running
from tests.consoles.conftest import ada, attach, operator
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = [
    "_database", "_quick", "ada", "ask", "attach", "blueprint", "operator", "owner", "soon", "until",
]  # fmt: skip

BMC = {"driver": "ipmi", "address": "192.0.2.7"}
KEY = " ".join(new_key_pair().public.split()[:2])


def registration(console: Any) -> Registration:
    return Registration.model_validate({"address": "192.0.2.1", "host_keys": [KEY], "bmc": BMC, "console": console})


@pytest.mark.parametrize(
    ("console", "field", "said"),
    [
        ({}, "console.driver", "Name the driver"),
        ({"driver": "nothing"}, "console.driver", "no console driver 'nothing'. Installed are: command, ssh"),
        ({"driver": "none", "address": "x"}, "console.driver", "remove address"),
        ({"driver": "ssh", "address": "192.0.2.2", "user": "c"}, "console.host_keys", "Field required"),
        ({"driver": "ssh", "address": "a b", "user": "c", "host_keys": [KEY]}, "console", "host name"),
        ({"driver": "command", "program": "../line", "address": "x"}, "console.program", "match pattern"),
        ("ssh", "console", "dictionary"),
    ],
)
def test_a_registration_names_the_field_that_is_wrong(console: Any, field: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        registration(console)
    found = [(".".join(map(str, one["loc"])), one["msg"]) for one in refused.value.errors()]
    assert any(where == field and said in what for where, what in found), found


def test_a_registration_keeps_what_was_given() -> None:
    given = {"driver": "ssh", "address": "192.0.2.2", "user": "c", "host_keys": [KEY], "command": "console 7"}
    assert registration(given).console == given
    assert registration({"driver": "none"}).console == {"driver": "none"}
    assert registration(None).console is None


@pytest.fixture(scope="module")
def guest() -> Iterator[Server]:
    peers.needs_root()
    with peers.server(f"127.9.11.{WORKER + 1}") as found:
        yield found


@pytest.fixture
def bmc() -> Iterator[Double]:
    """A BMC whose machine is on, and has a program on its console."""
    pytest.importorskip("pyghmi")
    with running(on=True, most_sessions=20, console="stty -echo raw; echo login:; exec cat") as double:
        yield double


@pytest.fixture
def register(
    guest: Server, bmc: Double, blueprint: Callable[..., Blueprint], operator: Caller, until: Callable[..., Any]
) -> Callable[..., Resource]:
    """Register and enrol the machine."""
    Credential.objects.create(name="control", secrets={"private_key": guest.control.private})
    Credential.objects.create(name="bmc", secrets={"username": USER, "password": PASSWORD})
    config = {
        "credential": "control", "bmc_credential": "bmc", "console_credential": "control", "min_free_mib": 1,
        "compare": "report",
    }  # fmt: skip
    blueprint("rack", kind="bare_metal", resource_type="host", config=config)

    def make(**more: Any) -> Resource:
        where = {"driver": "ipmi", "address": "127.0.0.1", "port": bmc.port}
        given = {**guest.registration(getpass.getuser()), "slots": 1, "bmc": where, **more}
        host = Resource.objects.get(pk=resources.register(operator, "rack", given).id)
        found: Resource = until(host, state="active", seconds=90)
        return found

    return make


@pytest.fixture
def alone() -> Iterator[None]:
    with peers.unchanged_accounts():
        yield


def retire(host: Resource, operator: Caller, until: Callable[..., Any]) -> None:
    resources.retire(operator, host.pk)
    until(host, state="destroyed", seconds=90)


@pytest.mark.timeout(240, func_only=True)
@pytest.mark.usefixtures("soon", "alone")
def test_the_console_of_a_bmc_is_used_through_a_lease_and_released_with_it(register, bmc, ask, attach, until, operator):
    host = register()
    assert "serial" in host.facts["bmc_functions"]
    lease = until(ask("host", exclusive=True), state="active", seconds=90)
    one, other = attach(lease), attach(lease, operator, read_only=True)
    one.until(state="open")
    one.type(b"\x00\xfe" + PASSWORD.encode() + b"|root\r")
    for reader in (one, other):
        reader.until(b"root\r")
        assert b"\x00\xfe***|root\r" in reader.read
    assert bmc.ask()["owner"]
    assert consoles.shown(one.who, lease.pk).source == "record"
    assert PASSWORD not in consoles.shown(one.who, lease.pk).text
    release.release(lease.pk, actor="ada")
    with pytest.raises(LeaseEnded):
        one.look()
    until(lease, state="destroyed", seconds=90)
    end = time.monotonic() + 30
    while bmc.ask()["owner"] or ConsoleOutput.objects.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert PASSWORD not in str(list(Event.objects.values_list("message", "details")))
    retire(host, operator, until)
    assert bmc.sessions == 0


@pytest.mark.timeout(240, func_only=True)
@pytest.mark.usefixtures("soon", "alone")
def test_a_killed_process_leaves_a_session_at_the_bmc_which_the_next_one_takes(
    register, bmc, ask, attach, until, operator, monkeypatch
):
    monkeypatch.setattr(pump, "TOKEN", 2.0)
    host = register()
    lease = until(ask("host", exclusive=True), state="active", seconds=90)
    attachments.attach(lease.pk, host.pk, "ada", session=None, read_only=True, take=False)
    connections.close_all()
    child = os.fork()
    if not child:  # it holds the line until it is killed
        pump.ensure(lease.pk)
        time.sleep(300)
        os._exit(1)
    try:
        end = time.monotonic() + 60
        while not Console.objects.exclude(opened_at=None).exists() or b"login:" not in record.newest(lease.pk, 100):
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    held = bmc.ask()["owner"]
    assert held, "the BMC does not know that its peer is dead"
    one = attach(lease)
    end = time.monotonic() + 60
    while bmc.ask()["owner"] in (0, held):
        assert time.monotonic() < end
        one.look()
    one.until(state="open")
    one.type(b"after\r")
    one.until(b"after\r")
    assert b"login:" in record.newest(lease.pk, 1000)
    one.leave()
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed", seconds=90)
    retire(host, operator, until)


@pytest.mark.timeout(240, func_only=True)
@pytest.mark.usefixtures("soon", "alone")
def test_a_registered_console_takes_the_place_of_the_bmcs(register, guest, bmc, ask, attach, until, operator):
    there = guest.registration(getpass.getuser())
    place = {name: there[name] for name in ("address", "port", "host_keys")} | {"user": getpass.getuser()}
    host = register(console={"driver": "ssh", **place, "command": "stty -echo raw; echo port 7; exec cat"})
    lease = until(ask("host", exclusive=True), state="active", seconds=90)
    one = attach(lease)
    one.until(b"port 7")
    one.type(bytes(range(256)))
    one.until(bytes(range(256)))
    assert not bmc.ask()["owner"]
    one.leave()
    with pytest.raises(InvalidRequest, match=r"console\.driver"):
        resources.change_registration(operator, host.pk, {"console": {"driver": "x"}})
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed", seconds=90)
    resources.change_registration(operator, host.pk, {"console": {"driver": "none"}})
    until(host, state="active")
    lease = until(ask("host", exclusive=True), state="active", seconds=90)
    with pytest.raises(NotSupported, match="registered without a console"):
        attach(lease)
    with pytest.raises(NotSupported, match="registered without a console"):
        consoles.shown(one.who, lease.pk)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed", seconds=90)
    retire(host, operator, until)
