"""Accounts of leases on a machine that has a key pair of its own, as hosts have that a kind builds itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from blueprints import hostshell
from blueprints.accounts import access, actions
from blueprints.accounts.config import Accounts
from blueprints.accounts.kind import LONG, WithAccounts
from blueprints.answers import Failed, Json, Scope, Wait
from blueprints.contract import Builds, Plan, Step
from blueprints.hosts import HOST
from blueprints.hostshell import NeedsOperator
from blueprints.specs import Asked, Draft, ResourceView
from blueprints.sshhost.config import Config
from blueprints.testing.phases import Phases
from drydock.core import clock
from interfaces.command.contract import Command
from interfaces.keys import new_key_pair
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)

PLACE = {"address": "10.0.0.7", "port": 22, "user": "root", "host_keys": [new_key_pair().public]}


class Machines(WithAccounts, Builds):
    """Machines that are there already, whose kind knows no credential."""

    name: ClassVar[str] = "test_machine"
    resource_type: ClassVar[str] = HOST

    def drafts(self, config: Any, asked: Asked | None) -> Sequence[Draft]:
        return [Draft(facts=PLACE)]

    def build(self) -> Plan:
        return (Step(name="look", act=actions.check_health), Step(name="prepare", act=actions.prepare))

    def destroy(self) -> Plan:
        return (Step(name="accounts", act=actions.remove_accounts, deadline=LONG),)


class Bench(Phases):
    """One machine, with its own key among its secrets."""

    kind: ClassVar[Machines] = Machines()

    def __init__(self, facts: Json | None = None, key: str = "", **config: Any) -> None:
        self.facts, self.key, self.said = PLACE if facts is None else facts, key, config

    def config(self) -> Json:
        return {"min_free_mib": 1, **self.said}

    def machine(self) -> ResourceView:
        """Before it is looked at."""
        return replace(self.resource(), facts=self.facts, secrets={"private_key": self.key} if self.key else {})


@pytest.fixture
def server() -> Iterator[Server]:
    peers.needs_root()
    with peers.alone(), peers.server(f"127.9.1.{WORKER + 201}") as running:
        yield running


@pytest.mark.parametrize("accounts", ["per_lease", "shared"])
def test_a_machine_with_a_key_of_its_own_needs_no_credential(server: Server, accounts: str) -> None:
    with peers.account() as name:
        user = name if accounts == "shared" else "root"
        bench = Bench(server.registration(user), server.control.private, accounts=accounts)
        machine = bench.built(bench.machine())
        lease = bench.activated(bench.lease(machine))
        command = lease.interface("command")
        assert isinstance(command, Command)
        assert command.check("id -un").text.strip() == lease.facts["user"]
        bench.ready("deactivate", machine, lease)
        assert not peers.accounts(access.user_of(lease))
        bench.destroyed(machine)


def test_the_machines_own_key_comes_before_a_credential() -> None:
    bench = Bench(key="own")
    named = replace(
        bench.blueprint(), config=Config(credential="all"), credentials={"all": {"private_key": "everywhere"}}
    )
    machine = replace(bench.machine(), blueprint=named)
    assert access.control_key(machine) == "own"
    assert access.control_key(replace(machine, secrets={})) == "everywhere"


def test_a_machine_without_any_key_is_for_the_operator() -> None:
    with pytest.raises(NeedsOperator):
        access.control_key(Bench().machine())


@pytest.mark.parametrize(("origin", "scope"), [("built", Scope.STEP), ("registered", Scope.OPERATOR)])
def test_a_place_that_is_unknown_can_be_mended_where_a_person_said_it(origin: str, scope: Scope) -> None:
    bench = Bench({**PLACE, "address": ""}, "own")
    answer = bench.run("check", replace(bench.machine(), origin=origin)).answer
    assert isinstance(answer, Failed)
    assert answer.scope is scope
    assert "address" in answer.message


def test_a_bastion_is_opened_by_the_credential_that_is_named_for_it() -> None:
    way = {"bastion": PLACE}
    with pytest.raises(ValidationError, match="bastion_credential"):
        Accounts.model_validate(way)
    assert Config.model_validate({"credential": "all", **way}).bastion
    bench = Bench(bastion_credential="door", **way)
    assert [one.field for one in bench.kind.check_blueprint(bench.blueprint())] == ["bastion_credential"]


@pytest.mark.parametrize(
    ("said", "alone", "isolation"),
    [
        ({}, False, "uid"),
        ({"trusted": True}, False, "uid"),
        ({"lease_sudo": True}, True, "machine"),
        ({"lease_sudo": True, "trusted": True}, False, "none"),
        ({"accounts": "shared"}, True, "machine"),
        ({"accounts": "shared", "trusted": True}, True, "machine"),
    ],
)
def test_what_stands_between_two_leases(said: Json, alone: bool, isolation: str) -> None:
    accounts = Accounts.model_validate(said)
    assert (accounts.one_at_a_time, accounts.isolation) == (alone, isolation)


@pytest.mark.parametrize(("took", "pause"), [(0.01, 1.0), (7.5, 7.5), (50.0, 15.0)])
def test_a_removal_that_took_long_leaves_the_worker_to_others_for_as_long(took, pause, monkeypatch):
    times = iter([100.0, 100.0 + took])

    class Clock:
        now = staticmethod(clock.now)

        @staticmethod
        def monotonic() -> float:
            return next(times)

    monkeypatch.setattr(hostshell, "clock", Clock)
    answer = hostshell.remove_or_put_aside({"kept": 1}, lambda: False, lambda: "nowhere")
    assert isinstance(answer, Wait)
    assert answer.after == pytest.approx(pause)
    assert answer.memo["kept"] == 1
