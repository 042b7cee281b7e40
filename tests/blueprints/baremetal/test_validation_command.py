"""`drydock hosts validate` through the engine: who is asked, what is shown, and what becomes of the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from blueprints.bmc.values import PowerState
from drydock.cli.hosts import validation
from drydock.cli.program import app
from drydock.cli.toolkit import options
from leases.engine.lifecycle import release
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event
from leases.operations import resources
from leases.operations.callers import caller
from tests.blueprints.baremetal.scripted import certificate
from tests.blueprints.baremetal.test_engine import (
    _alone,
    _database,
    _quick,
    ask,
    blueprint,
    bmc,
    operator,
    owner,
    rack,
    retire,
    scripted,
    server,
    soon,
    until,
)  # fmt: skip

__all__ = [
    "_alone", "_database", "_quick", "ask", "blueprint", "bmc", "operator", "owner", "rack", "scripted", "server",
    "soon", "until",
]  # fmt: skip
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon", "scripted")]
FEW = ("--only", "privileges", "--only", "sensors", "--only", "power-off")


@contextmanager
def _worker(client: Any) -> Iterator[Any]:
    """Carry out what is due, as a worker does, whenever the program looks."""
    yield SimpleNamespace(look=lambda: settle() or True)


@pytest.fixture
def drydock(operator, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(LocalClient, "attended", _worker)

    def run(*words: object, code: int = 0, who: Any = operator) -> str:
        monkeypatch.setattr(options, "client", lambda *_: LocalClient(who))
        done = CliRunner().invoke(app, ["hosts", "validate", *map(str, words)])
        assert done.exit_code == code, done.output
        return done.stdout if "--json" in words else done.output

    return run


def test_an_idle_host_is_validated_and_serves_leases_again(rack, bmc, drydock, until, operator, ask):
    alpha = until(rack(slots=1), state="active")
    said = drydock("alpha", *FEW, "--yes", code=1)
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert lines["CHECK"].split()[:2] == ["CHECK", "VERDICT"]
    assert {name: lines[name].split()[1] for name in ("privileges", "sensors", "power-on", "power-off", "left")} == {
        "privileges": "ok", "sensors": "FAILED", "power-on": "ok", "power-off": "ok", "left": "ok",
    }  # fmt: skip
    assert "The power of a machine that is on is cut in time" in lines["power-off"]
    assert "FAILED: sensors." in said
    alpha.refresh_from_db()
    assert (alpha.in_maintenance, alpha.quarantined, bmc.state) == (False, False, PowerState.ON)
    lease = until(ask("host", exclusive=True), state="active")
    assert validation.FACT_NAME not in resources.get(caller(lease.owner), alpha.pk).facts
    assert "Lease" in drydock("alpha", *FEW, "--yes", code=4), "a leased host is refused"
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    retire(operator, alpha)


def test_the_result_is_one_json_document(rack, bmc, drydock, until, operator):
    alpha = until(rack(), state="active")
    told = json.loads(drydock("alpha", "--only", "privileges", "--yes", "--json"))
    assert (told["ok"], told["failed"], told["problem"]) == (True, [], "")
    assert [(one["check"], one["verdict"]) for one in told["checks"]] == [("privileges", "ok"), ("left", "ok")]
    assert told["ended_at"] > told["began_at"]
    assert Event.objects.filter(kind="act.done", resource=alpha).count() == 1
    retire(operator, alpha)


def test_a_host_that_could_not_be_left_as_it_was_is_quarantined(rack, bmc, drydock, until, operator):
    alpha = until(rack(), state="active")
    bmc.shows = certificate("b")
    told = json.loads(drydock("alpha", "--only", "certificate", "--yes", "--json", code=1))
    assert told["failed"] == ["certificate", "left"]
    assert "could not be left as it was" in told["problem"]
    alpha.refresh_from_db()
    assert (alpha.quarantined, alpha.in_maintenance) == (True, False)
    bmc.shows = None
    assert json.loads(drydock("alpha", "--only", "left", "--yes", "--json"))["ok"]
    retire(operator, alpha)


def test_nothing_is_done_without_a_terminal_or_with_a_wrong_name(rack, bmc, drydock, until, operator):
    alpha = until(rack(), state="active")
    asked = len(bmc.asked)
    assert "Give --yes" in drydock("alpha", code=2)
    assert "does not exist. Choose one of: certificate" in drydock("alpha", "--only", "powr", "--yes", code=2)
    assert len(bmc.asked) == asked
    retire(operator, alpha)


@pytest.mark.parametrize(
    ("terminal", "option", "yes", "agrees", "erases"),
    [
        (False, None, True, True, False),
        (False, True, True, False, True),
        (True, None, True, True, False),
        (True, None, False, True, True),
        (True, None, False, False, False),
        (True, False, False, True, False),
    ],
)
def test_disks_are_erased_only_by_the_option_or_if_a_person_says_so(
    monkeypatch, terminal, option, yes, agrees, erases
):  # fmt: skip
    acts = [SimpleNamespace(name="erase")]
    monkeypatch.setattr(options, "client", lambda *_: SimpleNamespace(acts=lambda pk: acts))
    monkeypatch.setattr(validation.sys.stdin, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(validation.typer, "confirm", lambda *_, **__: agrees)
    host: Any = SimpleNamespace(id=1, name="alpha")
    assert validation._may_erase(host, option, yes) is erases
    acts.clear()
    if option is None:
        assert validation._may_erase(host, option, yes) is False, "a host without a ramdisk is never erased"
