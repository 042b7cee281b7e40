"""What the frame of all clouds makes of a client's refusals."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest

from blueprints.answers import Failed, Ready, Scope, Unknown, Wait
from blueprints.cloud import actions
from blueprints.cloud.actions import called
from blueprints.cloud.client import Firewall
from blueprints.cloud.faults import CloudError, Meaning, Reach
from drydock.core import clock


def refuses(meaning: Meaning, **how):
    def calls(client, spec, memo):
        raise CloudError(meaning, "The provider's words.", provider_code="Code", **how)

    return called(lambda resource: None, calls)


SPEC = SimpleNamespace(resource=None)


def test_a_throttled_call_is_made_again_with_what_it_knew():
    answer = refuses(Meaning.THROTTLED, after=7.0)(SPEC, {"handle": {"name": "operation-1"}})
    assert isinstance(answer, Wait)
    assert (answer.after, answer.memo) == (7.0, {"handle": {"name": "operation-1"}})


@pytest.mark.parametrize(
    ("meaning", "scope"),
    [
        (Meaning.NO_CAPACITY, Scope.OFFER), (Meaning.QUOTA, Scope.OFFER), (Meaning.NOT_OFFERED, Scope.OFFER),
        (Meaning.CREDENTIALS, Scope.OPERATOR), (Meaning.POLICY, Scope.OPERATOR),
        (Meaning.INVALID, Scope.OPERATOR), (Meaning.NOT_FOUND, Scope.STEP),
        (Meaning.UNAVAILABLE, Scope.STEP), (Meaning.CONFLICT, Scope.STEP), (Meaning.OTHER, Scope.STEP),
    ],
)  # fmt: skip
def test_a_refusal_reaches_as_far_as_its_meaning(meaning, scope):
    answer = refuses(meaning)(SPEC, {})
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code, answer.message) == (scope, "Code", "The provider's words.")


def test_a_whole_zone_may_lack_it():
    answer = refuses(Meaning.NO_CAPACITY, zone_wide=True)(SPEC, {})
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.ZONE


def test_only_looking_follows_a_lost_answer():
    assert isinstance(refuses(Meaning.AMBIGUOUS)(SPEC, {}), Unknown)


def test_what_works_is_answered_as_it_is():
    assert called(lambda resource: None, lambda client, spec, memo: Ready(facts=memo))(SPEC, {"a": 1}).facts == {"a": 1}


class TestRefused:
    """A create that was refused for certain, and its end."""

    @pytest.fixture
    def now(self, monkeypatch):
        """A clock that stands."""
        at = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
        monkeypatch.setattr(clock, "now", lambda: at)

    @pytest.fixture(autouse=True)
    def any_order(self, monkeypatch):
        monkeypatch.setattr(actions, "order", lambda spec: None)

    def resource(self, **facts):
        return SimpleNamespace(
            attributes={"region": "here", "market": "on_demand"}, key="dd-x-1-r1", facts={"stands_on": {}, **facts}
        )

    def client(self, meaning):
        def create(order, prepared):
            raise CloudError(meaning, "No.")

        return SimpleNamespace(create=create, instance=lambda *which: None, find_after=30.0, unseen_for=0.0)

    @pytest.mark.parametrize("meaning", [Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED, Meaning.INVALID])
    def test_its_end_waits_for_nothing(self, now, meaning):
        client = self.client(meaning)
        spec = SimpleNamespace(resource=self.resource())
        refused = called(lambda resource: client, actions.create)(spec, {})
        assert isinstance(refused, Failed)
        ending = SimpleNamespace(resource=self.resource(**refused.facts))
        assert isinstance(actions.terminate(client, ending, {}), Ready)

    def test_as_invalid_it_rules_out_its_offer_alone(self, now):
        spec = SimpleNamespace(resource=self.resource())
        refused = called(lambda resource: self.client(Meaning.INVALID), actions.create)(spec, {})
        assert (refused.scope, refused.blames_request) == (Scope.OFFER, True)

    def test_by_a_quota_it_rules_out_what_that_counts(self, now):
        def create(order, prepared):
            raise CloudError(Meaning.QUOTA, "No.", reach=Reach.MARKET)

        spec = SimpleNamespace(resource=self.resource(family="standard"))
        refused = called(lambda resource: SimpleNamespace(create=create), actions.create)(spec, {})
        assert (refused.scope, refused.key) == (Scope.LOCATION, "here//on_demand")

    @pytest.mark.parametrize("meaning", [Meaning.AMBIGUOUS, Meaning.UNAVAILABLE, Meaning.OTHER])
    def test_where_it_may_still_appear_the_end_waits_and_looks(self, now, monkeypatch, meaning):
        client = self.client(meaning)
        answer = called(lambda resource: client, actions.create)(SimpleNamespace(resource=self.resource()), {})
        assert not getattr(answer, "facts", {})
        ending = SimpleNamespace(resource=self.resource())
        first = actions.terminate(client, ending, {})
        assert isinstance(first, Wait)
        monkeypatch.setattr(clock, "now", lambda: dt.datetime(2026, 11, 22, 0, 0, 31, tzinfo=dt.UTC))
        assert isinstance(actions.terminate(client, ending, first.memo), Ready)


class TestSweep:
    """What a machine stands on, asked for and perhaps never answered."""

    @pytest.fixture
    def client(self):
        """A firewall rule appears when it has been looked for once."""
        swept = iter([[], ["rule"], []])
        return SimpleNamespace(sweep=lambda *which, **how: next(swept), find_after=30.0)

    def spec(self, **facts):
        return SimpleNamespace(resource=SimpleNamespace(attributes={}, key="dd-x-1-r1", facts=facts), tags={})

    def test_what_may_still_appear_is_waited_for(self, client, monkeypatch):
        at = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
        monkeypatch.setattr(clock, "now", lambda: at)
        spec = self.spec(image="debian")
        first = actions.sweep(client, spec, {})
        assert isinstance(first, Wait)
        monkeypatch.setattr(clock, "now", lambda: at + dt.timedelta(seconds=31))
        second = actions.sweep(client, spec, first.memo)
        assert isinstance(second, Wait)
        assert "rule" in second.sentence
        assert isinstance(actions.sweep(client, spec, second.memo), Ready)

    @pytest.mark.parametrize("facts", [{}, {"image": "debian", "stands_on": {}}], ids=["nothing asked", "answered"])
    def test_where_nothing_can_appear_nothing_is_waited_for(self, facts, client):
        assert isinstance(actions.sweep(client, self.spec(**facts), {}), Ready)


class TestPorts:
    """Ports of two leases on one machine."""

    class Wall(Firewall):
        """A firewall that keeps what is open; `then` happens when something is closed."""

        provider = "wall"

        def __init__(self, *ports):
            self.ports, self.then = set(ports), lambda: None

        def open_ports(self, instance, rules):
            self.ports |= {rule.port for rule in rules}

        def close_ports(self, instance, rules):
            self.ports -= {rule.port for rule in rules}
            self.then()

    def ending(self, ports, others):
        asked = SimpleNamespace(requirements=SimpleNamespace(ports=ports))
        lease = SimpleNamespace(asked=asked, others=lambda: [
            SimpleNamespace(requirements=SimpleNamespace(ports=one)) for one in others
        ])  # fmt: skip
        resource = SimpleNamespace(attributes={}, facts={}, key="dd-x-1-r1")
        return SimpleNamespace(lease=lease, resource=resource, config=SimpleNamespace(ssh_port=22), phase="deactivate")

    def test_a_port_stays_open_until_the_last_lease_that_asked_for_it_ends(self):
        wall = self.Wall(80, 443, 8080)
        actions.close_ports(wall, self.ending((80, 443), [(443, 8080), None]), {})
        assert wall.ports == {443, 8080}
        actions.close_ports(wall, self.ending((443, 8080), [None]), {})
        assert wall.ports == set()

    def test_one_that_comes_at_that_instant_finds_its_port_open(self):
        wall, others = self.Wall(80), []
        wall.then = lambda: others.append((80,))
        actions.close_ports(wall, self.ending((80,), others), {})
        assert wall.ports == {80}


def test_the_console_is_kept_of_what_fails_and_once_of_what_takes_long(monkeypatch):
    monkeypatch.setattr(actions, "console", lambda client, resource: "Kernel panic")
    answers = iter([Wait(), Wait(memo={"looks": 2}), Wait(), Failed(scope=Scope.STEP, code="x", message="No.")])
    act = actions.with_console(lambda resource: None, lambda spec, memo: next(answers), 100.0)
    first = act(SPEC, {})
    assert not first.log
    long_ago = {**first.memo, "since": (clock.now() - dt.timedelta(seconds=90)).isoformat()}
    late = act(SPEC, long_ago)
    assert (late.log, late.memo["looks"]) == ("Kernel panic", 2)
    assert not act(SPEC, late.memo).log
    assert act(SPEC, late.memo).log == "Kernel panic"
