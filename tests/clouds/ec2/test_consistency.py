"""EC2 as it is on a bad day: pages that are empty, and instances that no read tells of yet."""

from __future__ import annotations

import dataclasses
import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.cloud import actions
from blueprints.cloud.check import problems
from blueprints.cloud.inventory import owned
from blueprints.cloud.values import Lifecycle, Order
from blueprints.ec2.client import Ec2
from blueprints.ec2.kind import Config
from drydock.core import clock
from tests.clouds.ec2.double import PAGED, Double
from tests.clouds.ec2.orders import DEBIAN, TAGS, again, made, order

OURS = {"drydock-installation": "abc"}


def test_an_empty_page_with_a_token_is_not_the_end(double: Double, ec2: Ec2) -> None:
    double.empty_first = True
    given = order(disk_gib=20)
    assert ec2.image("us-east-1", {"id": DEBIAN}, "x86_64").id == DEBIAN
    instance = made(ec2, given)
    assert ec2.prepare(given) == ec2.prepare(dataclasses.replace(given, network=ec2.prepare(given)["subnet"]))
    assert len(double.objects()["security_groups"]) == 1
    assert again(ec2, instance).state is Lifecycle.RUNNING
    assert ec2.instance("us-east-1", "", given.key, "") is not None
    assert ec2.find(given) is not None
    assert [one.id for one in ec2.instances("us-east-1", OURS)] == [instance.id]
    assert ec2.images("us-east-1", "debian-12-*")
    assert any(one.name == "t3.micro" and one.zones and one.prices for one in ec2.types("us-east-1"))
    assert any(one.used for one in ec2.quotas("us-east-1"))
    ec2.resize_volume(instance, 40)
    assert ec2.remains("us-east-1", OURS)
    ec2.terminate(instance)
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}


def test_a_check_follows_every_token_too(double: Double, ec2: Ec2) -> None:
    double.empty_first = True
    config = Config(credential="account", regions=("us-east-1",), types=("t3.micro",))
    assert not [one.message for one in problems(ec2, config) if one.fatal]
    assert {one.action for one in double.requests} & {*PAGED}


def _spec(given: Order, **facts: Any) -> Any:
    resource = SimpleNamespace(
        key=given.key, facts=facts, attributes={"region": given.location, "zone": given.zone, "market": "on_demand"},
        blueprint=SimpleNamespace(config=SimpleNamespace(public_address=True)),
    )  # fmt: skip
    return SimpleNamespace(resource=resource, tags=given.tags)


class TestUnseen:
    """An instance that EC2 has made, and tells nobody of for a while."""

    @pytest.fixture
    def given(self, monkeypatch: pytest.MonkeyPatch, double: Double) -> Order:
        given = order()
        monkeypatch.setattr(actions, "order", lambda spec: given)
        double.lag = 3600.0
        return given

    @pytest.fixture
    def spec(self, given: Order, ec2: Ec2) -> Any:
        """After the create."""
        prepared = dict(ec2.prepare(given))
        created = actions.create(ec2, _spec(given, stands_on=prepared), {})
        assert isinstance(created, Ready)
        return _spec(given, stands_on=prepared, **created.facts)

    def test_is_waited_for_and_makes_no_second_machine(self, double: Double, ec2: Ec2, spec: Any) -> None:
        memo: Any = {}
        for _ in range(12):
            answer = actions.boot(ec2, spec, memo)
            assert isinstance(answer, Wait)
            memo = answer.memo
        assert double.objects()["instances"] == [spec.resource.facts["instance_id"]]
        assert len({one.parameters["ClientToken"] for one in double.asked("RunInstances")}) == 1
        assert len(double.asked("RunInstances")) > 1
        double.lag = 0.0
        while isinstance(answer, Wait):
            answer = actions.boot(ec2, spec, answer.memo)
        assert isinstance(answer, Ready)
        kept = {part.split("-")[0] for part in answer.facts["parts"]}
        assert kept == {"vol", "eni"}

    def test_is_gone_when_it_is_unseen_for_five_minutes(
        self, ec2: Ec2, spec: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        later = clock.now() + dt.timedelta(seconds=301)
        monkeypatch.setattr(clock, "now", lambda: later)
        assert isinstance(actions.boot(ec2, spec, {"looks": 3}), Failed)

    def test_is_terminated_by_its_id(self, double: Double, ec2: Ec2, spec: Any) -> None:
        answer = actions.terminate(ec2, spec, {})
        assert isinstance(answer, Wait)
        assert "instances" not in double.objects()
        double.lag = 0.0
        assert isinstance(actions.terminate(ec2, spec, answer.memo), Ready)

    def test_that_has_ended_already_fails_at_once(self, double: Double, ec2: Ec2, spec: Any) -> None:
        double.lag = 0.0
        double.preempt(spec.resource.facts["instance_id"])
        answer = actions.boot(ec2, spec, {"looks": 3})
        assert isinstance(answer, Failed)
        assert "Server.SpotInstanceTermination" in answer.message


def test_what_is_left_is_seen_though_its_terminated_machine_is_still_listed(double: Double, ec2: Ec2) -> None:
    given = order()
    instance = made(ec2, given)
    assert [one.what for one in owned(ec2, ["us-east-1"], OURS)] == ["machine"]
    ec2.terminate(instance)
    assert again(ec2, instance).state is Lifecycle.TERMINATED
    assert [(one.key, one.what) for one in owned(ec2, ["us-east-1"], OURS)] == [(given.key, "security group")]


def test_a_sweep_needs_only_the_tags_that_say_whose_it_is(double: Double, ec2: Ec2) -> None:
    given = order(tags={**TAGS, "drydock-blueprint": "old", "team": "a"})
    instance = made(ec2, given)
    ec2.terminate(instance)
    assert ec2.sweep("us-east-1", "", given.key, {**TAGS, "drydock-blueprint": "renamed", "team": "b"}) == []
    assert double.objects() == {}


def test_another_epoch_of_the_same_number_is_another_resource(double: Double, ec2: Ec2) -> None:
    tags = [{"Key": name, "Value": value} for name, value in {**TAGS, "drydock-epoch": "1"}.items()]
    ec2.connection.call(
        "create_volume", "us-east-1", AvailabilityZone="us-east-1a", Size=1,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )  # fmt: skip
    assert ec2.sweep("us-east-1", "", "dd-abc-2-r1", {**TAGS, "drydock-epoch": "2"}) == []
    assert "volumes" in double.objects()
    assert ec2.sweep("us-east-1", "", "dd-abc-1-r1", {**TAGS, "drydock-epoch": "1"}) == []
    assert double.objects() == {}


def test_what_lost_its_tags_is_found_by_its_id_and_told(double: Double, ec2: Ec2) -> None:
    given = order()
    group, told = ec2.prepare(given)["group"], list[str]()
    other = ec2.prepare(order())["group"]
    names = [{"Key": name} for name in double.tags(group)]
    ec2.connection.call("delete_tags", "us-east-1", Resources=[group], Tags=names)
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert len(double.objects()["security_groups"]) == 2
    known = [group, other, "vpc-1", "/dev/xvda"]
    assert ec2.sweep("us-east-1", "", given.key, TAGS, known=known, report=told.append) == []
    assert group not in double.known_groups()
    assert other in double.known_groups(), "it bears the tags of another"
    assert len(told) == 1
    assert group in told[0]
    assert "somebody removed its tags" in told[0]
