"""What is done to machines of any cloud: which steps follow which refusals, without a cloud."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.cloud import client, operations
from blueprints.cloud.actions import called
from blueprints.cloud.faults import CloudError, Meaning, SdkNotInstalled
from blueprints.cloud.values import Instance, Lifecycle
from blueprints.contract import Powers, Reboots, Retypes
from blueprints.ec2.kind import Ec2Host


class Cloud(client.StopsStarts, client.ChangesType, client.Tags):
    """One machine, which changes at once; `refused` are the types that it cannot be started as."""

    provider = "cloud"

    def __init__(self, state=Lifecycle.RUNNING, refused=()):
        self.it = Instance(id="i-1", key="k", state=state, location="here", type="small", public_address="127.0.0.9")
        self.refused, self.asked = set(refused), []

    def instance(self, *which):
        return self.it

    def _is(self, what, **changed):
        self.asked.append(what)
        self.it = replace(self.it, **changed)

    def stop(self, instance):
        self._is("stop", state=Lifecycle.STOPPED)

    def start(self, instance):
        if self.it.type in self.refused:
            raise CloudError(Meaning.NO_CAPACITY, f"No {self.it.type} is left.")
        self._is("start", state=Lifecycle.RUNNING)

    def change_type(self, instance, type_name):
        assert instance.state is Lifecycle.STOPPED
        self._is(type_name, type=type_name)

    def set_tags(self, instance, tags):
        self._is("tags", tags=tags)


def spec(**wanted):
    config = SimpleNamespace(public_address=True)
    resource = SimpleNamespace(
        attributes={"region": "here", "instance_type": "small"}, facts={"instance_id": "i-1"}, key="k",
        blueprint=SimpleNamespace(config=config),
    )  # fmt: skip
    return SimpleNamespace(resource=resource, config=config, wanted=wanted)


def carried_out(cloud, *steps, **wanted):
    """The answer of the last step, each called until it no longer waits."""
    answer = None
    for step in steps:
        memo, act = {}, called(lambda resource: cloud, step)
        for _ in range(60):
            answer = act(spec(**wanted), memo)
            if not isinstance(answer, Wait):
                break
            memo = answer.memo
        if not isinstance(answer, Ready):
            break
    return answer


RETYPE = (operations.stop, operations.change, operations.start)
WANTED = {"type": "big", "from": "small", "power": "on"}


def test_a_change_of_type_is_stopped_changed_and_started():
    cloud = Cloud()
    answer = carried_out(cloud, *RETYPE, **WANTED)
    assert isinstance(answer, Ready)
    assert answer.facts == {"address": "127.0.0.9"}
    assert cloud.asked == ["stop", "big", "start"]


def test_what_is_off_is_changed_and_stays_off():
    cloud = Cloud(Lifecycle.STOPPED)
    assert isinstance(carried_out(cloud, *RETYPE, **WANTED | {"power": "off"}), Ready)
    assert cloud.asked == ["big"]


def test_what_cannot_be_had_is_the_old_type_again_and_runs():
    cloud = Cloud(refused=["big"])
    answer = carried_out(cloud, *RETYPE, **WANTED)
    assert isinstance(answer, Failed)
    assert (
        answer.message
        == "The machine could not be started as a big: No big is left. Its instance type is small again, and it runs."
    )
    assert cloud.asked == ["stop", "big", "small", "start"]


def test_what_cannot_be_had_at_all_is_the_old_type_and_off():
    cloud = Cloud(refused=["big", "small"])
    answer = carried_out(cloud, *RETYPE, **WANTED)
    assert isinstance(answer, Failed)
    assert "instance type is small again, and it is off" in answer.message
    assert (cloud.it.type, cloud.it.state) == ("small", Lifecycle.STOPPED)


def test_a_start_that_comes_to_nothing_counts_as_refused():
    cloud = Cloud()
    cloud.start = lambda instance: cloud.asked.append("start")
    answer = carried_out(cloud, *RETYPE, **WANTED)
    assert isinstance(answer, Failed)
    assert "is still stopped" in answer.message
    assert cloud.it.type == "small"


def test_what_is_gone_is_said_so():
    cloud = Cloud(Lifecycle.TERMINATED)
    for step in (*RETYPE, operations.tag):
        answer = carried_out(cloud, step, **WANTED, tags={})
        assert isinstance(answer, Failed)
        assert answer.code == "gone"


def test_what_a_client_cannot_do_is_said_by_its_class_and_by_the_step():
    class Kind(operations.Operates):
        name = "mine"

        def client_class(self):
            return Cloud

        def client_of(self, resource):
            return Cloud()

    lacking = Kind().lacking(None)
    assert Reboots in lacking
    assert not {Powers, Retypes} & lacking
    for step in (operations.reboot, operations.resize):
        answer = carried_out(Cloud(), step, **WANTED)
        assert isinstance(answer, Failed)
        assert (answer.code, answer.message.startswith("cloud cannot")) == ("not_supported", True)


def test_without_the_sdk_a_worker_decides():
    class Kind(operations.Operates):
        name = "mine"

        def client_class(self):
            raise SdkNotInstalled("mine", ("boto3",), ImportError("boto3"))

        def client_of(self, resource):
            raise AssertionError

    assert Kind().lacking(None) == frozenset()


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({"team": "a"}, ""),
        ({"aws:x": "a"}, "reserves names"),
        ({"cost": "1"}, "The blueprint sets"),
        ({"a<b": "1"}, "contains one of"),
    ],
)
def test_tags_that_are_not_the_owners_to_set_are_refused(tags, why):
    class Kind(operations.Operates):
        name = "ec2"
        reserved_tags = Ec2Host.reserved_tags

        def client_class(self):
            return Cloud

        def client_of(self, resource):
            return Cloud()

    said = Kind().refused_tags(SimpleNamespace(tags={"cost": "x"}), tags)
    assert (why in said) if why else not said
