"""A host is in one network at most, at any time: whatever fails, lies or dies between any two calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Failed, Json, Ready, Wait
from blueprints.baremetal import network
from blueprints.baremetal.kind import BareMetal
from blueprints.baremetal.network import Attached, Call, calls
from blueprints.bmc.values import PowerState
from blueprints.networks.contract import Port
from blueprints.networks.errors import NetworkLoginRefused, NetworkRefused, NetworkUnreachable
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.outcome import Mishap, Outcome
from blueprints.testing.phases import expect_ready
from tests.blueprints.baremetal.network_bench import NETWORK, PORTS, Rack, rack
from tests.blueprints.baremetal.scripted import scripted

__all__ = ["scripted"]
pytestmark = pytest.mark.usefixtures("scripted")

FIRST, SECOND = (Port.model_validate(one) for one in PORTS)


@pytest.fixture
def bed(scripted: None) -> Iterator[Rack]:
    with rack() as made:
        yield made


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome.answer, Failed), outcome.answer
    return outcome.answer


def active(bed: Rack, host: ResourceView) -> LeaseView:
    return bed.activated(bed.lease(host))


def ended(outcome: Outcome) -> tuple[ResourceView, LeaseView]:
    """The resource and the lease after a phase of the lease."""
    lease = outcome.spec.lease
    assert lease is not None
    return outcome.spec.resource, lease


def where(bed: Rack) -> set[str]:
    return bed.journal.there()


def test_the_calls_leave_every_network_with_every_port_before_the_first_port_enters_one() -> None:
    before = Attached(networks=("deploy", "blue"), ports=(FIRST, SECOND))
    said = [(one.action, one.port.switch, one.network) for one in calls(before, (FIRST, SECOND), "blue")]
    assert said == [
        ("detach", "leaf-1", "deploy"), ("detach", "leaf-2", "deploy"), ("left", "leaf-1", "blue"),
        ("left", "leaf-2", "blue"), ("attach", "leaf-1", "blue"), ("attach", "leaf-2", "blue"),
        ("entered", "leaf-1", "blue"), ("entered", "leaf-2", "blue"),
    ]  # fmt: skip


def test_a_port_that_was_replaced_leaves_all_networks() -> None:
    before = Attached(networks=("blue",), ports=(FIRST,))
    assert calls(before, (SECOND,), "blue")[:3] == (
        Call(action="detach", port=FIRST, network="blue"),
        Call(action="left", port=FIRST, network=""),
        Call(action="left", port=SECOND, network="blue"),
    )
    assert {one.action for one in calls(before, (), "")} == {"detach", "left"}


def test_what_is_recorded_is_read_back() -> None:
    known = Attached(networks=("blue",), ports=(FIRST, SECOND))
    assert Attached.of(known.facts()) == known
    assert Attached().facts() == {"network": None}
    assert Attached.of({"network": None}) == Attached.of({}) == Attached()


def test_a_host_goes_through_its_networks_in_order_and_ends_in_none(bed: Rack) -> None:
    host = bed.built()
    assert bed.journal.boots == [("ramdisk", ("deploy",))]
    lease = active(bed, host)
    assert bed.journal.boots[1:] == [("ramdisk", ("deploy",)), ("disk", ("green",))]
    assert where(bed) == {"green"}
    assert lease.facts["network"] == "green"
    assert "leaf-1" not in str(lease.facts)
    host, over = ended(bed.ready("deactivate", lease.resource, lease))
    assert (where(bed), bed.bmc.state) == (set(), PowerState.OFF)
    host = bed.ready("clean", host, over).spec.resource
    assert bed.journal.boots[3:] == [("ramdisk", ("wash",))]
    assert (where(bed), host.facts["network"]) == (set(), None)
    bed.destroyed(host)
    attached = [(port, name) for action, port, name in bed.fabric.calls if action == "attach"]
    assert [name for _, name in attached] == [
        one for name in ("deploy", "deploy", "green", "wash") for one in [name] * 2
    ]


def test_a_lease_that_names_no_network_is_in_the_first_one(bed: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed, "requirements", lambda: {"image": "small"})
    active(bed, bed.built())
    assert where(bed) == {"blue"}


def test_a_network_that_the_blueprint_does_not_list_is_refused(bed: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed, "requirements", lambda: {"network": "deploy"})
    host = bed.built()
    outcome = bed.run("activate", host, bed.lease(host))
    answer = failure(outcome)
    assert (outcome.step, answer.scope) == ("tenant_record", "operator")
    assert answer.message == "The blueprint has no network 'deploy' for leases, only blue, green."
    bed.ready("deactivate", *ended(outcome))
    assert where(bed) == set()


def test_what_is_attached_is_recorded_before(bed: Rack) -> None:
    host, seen = bed.built(), []
    plan = bed.plan("activate")
    for at in range(len(plan)):
        outcome = bed.run("activate", host, bed.lease(host), mishap=Mishap(does="crash", at=at))
        known = Attached.of(outcome.spec.resource.facts).networks
        assert where(bed) <= set(known), plan[at].name
        seen.append(known)
        bed.ready("deactivate", *ended(outcome))
    assert ("deploy", "green") in seen


@pytest.mark.parametrize("does", ["crash", "lose", "stop"])
def test_a_process_that_dies_between_any_two_calls_leaves_no_host_in_two_networks(bed: Rack, does: Any) -> None:
    for phase in ("build", "activate", "deactivate", "clean", "destroy"):
        for at in range(len(bed.plan(phase))):
            _interrupted(bed, phase, Mishap(does=does, at=at))
    assert len(bed.journal.boots) > 40


def _interrupted(bed: Rack, phase: str, mishap: Mishap) -> None:
    """Go through the life of a host. The phase is interrupted, and then gone on with or undone, as the engine would."""
    host = bed.resource()
    if phase == "build":
        bed.run("build", host, mishap=mishap)
        host = bed.run("build", host, mishap=mishap).spec.resource
    host = bed.built(host)
    lease = bed.lease(host)
    if phase == "activate":
        host, lease = ended(bed.run("activate", host, lease, mishap=mishap))
        host, lease = ended(bed.ready("deactivate", host, lease))
        assert where(bed) == set()
        before = bed.run("activate", host, lease, mishap=mishap)
        host, lease = ended(before if before.ended == "ready" else expect_ready(bed.resume(before)))
    else:
        host, lease = ended(bed.ready("activate", host, lease))
    assert where(bed) == {"green"}
    for following in ("deactivate", "clean"):
        if phase == following:
            host, lease = ended(bed.run(following, host, lease, mishap=mishap))
        host, lease = ended(bed.ready(following, host, lease))
        assert where(bed) == set()
    if phase == "destroy":
        host = bed.run("destroy", host, mishap=mishap).spec.resource
    bed.destroyed(host)
    assert (where(bed), bed.bmc.state) == (set(), PowerState.OFF)


def test_every_call_of_the_switches_may_fail_once(bed: Rack) -> None:
    clean = bed.built()
    active_lease = active(bed, clean)
    bed.ready("deactivate", active_lease.resource, active_lease)
    for action in ("attach", "detach", "check"):
        for error in (NetworkUnreachable(), NetworkLoginRefused()):
            # A switch that does not answer can neither be changed nor read.
            bed.fabric.errors = {action: error, "check": error}
            lease = bed.lease(clean)
            outcome = bed.run("activate", clean, lease)
            assert failure(outcome).code == error.code
            assert failure(outcome).scope == error.scope
            bed.fabric.errors = {}
            bed.ready("deactivate", *ended(outcome))
            assert where(bed) == set()
    bed.destroyed(clean)


def test_a_switch_that_can_only_be_read_is_not_taken_for_one_that_does_not_answer(bed: Rack) -> None:
    """A health check would find that it answers, and the cleanup would be tried again at once, without end."""
    lease = active(bed, bed.built())
    bed.fabric.errors = {"detach": NetworkUnreachable("leaf-1 took too long")}
    answer = failure(bed.run("deactivate", lease.resource, lease))
    assert (answer.code, answer.scope) == ("network_refused", "step")
    assert answer.message == "The switch can be read, but did not carry out a change in time."
    bed.fabric.errors = {}
    bed.ready("deactivate", lease.resource, lease)


@pytest.mark.parametrize("error", [NetworkLoginRefused("leaf-1: no such user"), NetworkRefused("leaf-1: locked")])
def test_a_detach_that_fails_blocks_the_cleaning_and_says_why(bed: Rack, error: Any) -> None:
    lease = active(bed, bed.built())
    bed.fabric.errors["detach"] = error
    outcome = bed.run("deactivate", lease.resource, lease)
    assert (outcome.step, bed.bmc.state, where(bed)) == ("no_network", PowerState.OFF, {"green"})
    assert failure(outcome).message == error.plain, "an owner reads no name of a switch"
    host, over = ended(outcome)
    blocked = bed.run("clean", host, over)
    assert (blocked.step, failure(blocked).code) == ("cleaning_network", error.code)
    assert where(bed) == {"green"}
    assert bed.journal.boots[-1][0] == "disk", "the ramdisk was not booted"
    del bed.fabric.errors["detach"]
    host, over = ended(bed.ready("deactivate", host, over))
    bed.destroyed(bed.ready("clean", host, over).spec.resource)


def test_a_switch_that_detaches_nothing_is_not_believed(bed: Rack) -> None:
    lease = active(bed, bed.built())
    bed.fabric.ignores.add("detach")
    outcome = bed.run("deactivate", lease.resource, lease)
    assert failure(outcome).code == "network_not_left"
    assert failure(outcome).message == "The host was detached from the network green, but is still in it."
    host, over = ended(outcome)
    blocked = bed.run("clean", host, over)
    assert (blocked.step, failure(blocked).code) == ("cleaning_network", "network_not_left")
    bed.fabric.ignores.clear()
    host, over = ended(bed.ready("deactivate", host, over))
    bed.ready("clean", host, over)
    assert where(bed) == set()


def test_a_switch_that_attaches_nothing_is_not_believed(bed: Rack) -> None:
    bed.fabric.ignores.add("attach")
    outcome = bed.run("build", bed.resource())
    assert (outcome.step, failure(outcome).code) == ("provisioning_network", "network_not_entered")
    words = "The port Ethernet1/1 of switch leaf-1 was attached to the network deploy, but is not in it."
    assert failure(outcome).message == words
    assert bed.journal.boots == []


def test_a_port_in_a_foreign_network_stays_there_and_the_host_is_not_moved(bed: Rack) -> None:
    bed.fabric.of(SECOND).add("VLAN 77")
    outcome = bed.run("build", bed.resource())
    assert (failure(outcome).code, failure(outcome).scope) == ("network_occupied", "operator")
    assert "port Ethernet1/1 of switch leaf-2 is in the network VLAN 77" in failure(outcome).message
    assert bed.fabric.networks == {FIRST.name: set(), SECOND.name: {"VLAN 77"}}
    assert not [one for one in bed.fabric.calls if one[0] == "attach"], "not even the other port was attached"
    bed.fabric.of(SECOND).clear()


def test_a_network_of_the_blueprint_that_was_not_recorded_is_left_before_the_next_is_entered(bed: Rack) -> None:
    """After the database was restored, for example."""
    lease = active(bed, bed.built())
    forgotten = replace(lease.resource, facts={**lease.resource.facts, "network": None})
    bed.ready("clean", forgotten, replace(lease, resource=forgotten))
    assert where(bed) == set()
    assert bed.journal.boots[-1] == ("ramdisk", ("wash",))
    bed.fabric.of(FIRST).add("blue")
    bed.fabric.ignores.add("detach")
    blocked = bed.run("clean", forgotten, replace(lease, resource=forgotten))
    assert (blocked.step, failure(blocked).code) == ("cleaning_network", "network_not_left")
    bed.fabric.ignores.clear()
    bed.fabric.of(FIRST).clear()


def test_a_port_that_was_replaced_meanwhile_is_detached_too(bed: Rack) -> None:
    lease = active(bed, bed.built())
    bed.ports = ({"switch": "leaf-9", "port": "Ethernet1/1"},)
    moved = {**lease.resource.registration, "ports": list(bed.ports)}
    host = replace(lease.resource, registration=moved)
    host, over = ended(bed.ready("deactivate", host, replace(lease, resource=host)))
    assert where(bed) == set()
    bed.ready("clean", host, over)
    assert next(port for action, port, name in bed.fabric.calls if name == "wash") == "leaf-9/ethernet1/1"


def test_a_blueprint_without_networks_blocks_a_host_that_is_still_in_one(bed: Rack) -> None:
    lease = active(bed, bed.built())
    bed.given = {}
    host = replace(lease.resource, blueprint=bed.blueprint())
    host, over = ended(bed.ready("deactivate", host, replace(lease, resource=host)))
    assert where(bed) == {"green"}
    for phase in ("clean", "activate"):
        answer = failure(bed.run(phase, host, over))
        assert (answer.code, answer.scope) == ("network_not_left", "operator")
        assert "still be attached to the network green, but `network` was removed from the blueprint" in answer.message
    bed.given = {"network": NETWORK}
    host = replace(host, blueprint=bed.blueprint())
    host, over = ended(bed.ready("deactivate", host, replace(over, resource=host)))
    bed.ready("clean", host, over)


def test_slow_switches_take_several_calls_of_a_step(bed: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("drydock.core.clock.monotonic", lambda: clock[0])
    bed.fabric.changed = lambda: None
    real = bed.fabric.call

    def slow(action: str, port: Port, name: str) -> None:
        clock[0] += 5.0
        real(action, port, name)

    monkeypatch.setattr(bed.fabric, "call", slow)
    outcome = bed.ready("build", bed.resource())
    waits = [one.answer for one in outcome.calls if one.step == "provisioning_network" and isinstance(one.answer, Wait)]
    assert len(waits) > 2
    assert [wait.memo["at"] for wait in waits] == sorted({wait.memo["at"] for wait in waits})
    assert waits[0].sentence == "The host is being moved to the network deploy."


def test_without_networks_nothing_is_called_and_nothing_recorded(bed: Rack) -> None:
    bed.given = {}
    lease = active(bed, bed.built())
    host, over = ended(bed.ready("deactivate", lease.resource, lease))
    host = bed.ready("clean", host, over).spec.resource
    bed.destroyed(host)
    assert bed.fabric.calls == []
    assert "network" not in host.facts
    config = bed.blueprint().config
    names = {"isolate", "halt", "no_network"}
    for phase in ("build", "activate", "deactivate", "clean", "destroy"):
        for step in getattr(BareMetal(), phase)():
            if step.name in names or step.name.endswith(("_record", "_network")):
                assert not step.applies(config), step.name


class Installed(Rack):
    """A host whose system somebody else has installed."""

    def config(self) -> Json:
        without = ("ramdisk", "images")
        return {name: value for name, value in super().config().items() if name not in without}

    def registration(self) -> Json:
        return {**super().registration(), "host_keys": [self.guest.control.public]}

    def requirements(self) -> Json:
        return {"network": "green"}


def test_a_host_without_a_ramdisk_is_in_the_network_of_its_lease_only(bed: Rack) -> None:
    host = Installed(bed.bmc, bed.journal)
    host.given = {"network": {name: NETWORK[name] for name in ("driver", "settings", "tenant")}}
    resource = host.built()
    clean = host.ready("activate", resource, host.lease(resource))
    assert [call.step for call in clean.calls] == ["tenant_record", "tenant_network"]
    assert where(host) == {"green"}
    host.ready("deactivate", *ended(clean))
    for mishap in host.mishaps("crash", clean):
        broken = host.run("activate", resource, host.lease(resource), mishap=mishap)
        host.ready("deactivate", *ended(broken))
        assert where(host) == set()
    names = [step.name for step in BareMetal().deactivate()]
    assert names.index("processes") < names.index("no_network"), "access ends first"
    assert (host.journal.boots, host.bmc.asked) == ([], []), "its power is not switched"
    host.destroyed(resource)


def test_a_rescue_stays_in_the_network_of_the_lease(bed: Rack) -> None:
    rescue = next(act for act in BareMetal().acts() if act.name == "rescue")
    assert not {"isolate", "provisioning_network", "no_network"} & {step.name for step in rescue.plan()}


def test_codes_of_switches_close_a_host_until_they_answer() -> None:
    assert BareMetal.unreachable >= network.NOT_SWITCHED


def test_a_check_asks_the_switches_of_a_host_that_could_not_leave_and_of_no_other(bed: Rack) -> None:
    look = next(step for step in BareMetal().check() if step.name == "network")
    host = bed.built()

    def checked(view: ResourceView) -> Any:
        bed.fabric.calls.clear()
        return look.act(bed.spec("check", view), {})

    assert (checked(host), bed.fabric.calls) == (Ready(), [])
    lease = active(bed, host)
    leased = replace(lease.resource, lease_facts=lambda: (lease.facts,))
    assert (checked(leased), bed.fabric.calls) == (Ready(), [])
    stuck = lease.resource
    assert checked(stuck) == Ready()
    assert [action for action, _, _ in bed.fabric.calls] == ["check", "check"]
    bed.fabric.errors["check"] = NetworkUnreachable("leaf-1 is silent")
    silent = checked(stuck)
    assert (silent.code, silent.message) == ("network_unreachable", "leaf-1 is silent")
    bed.fabric.errors["check"] = NetworkRefused("leaf-1: locked")
    assert checked(stuck) == Ready(log="The networks of the host cannot be read: leaf-1: locked")
    bed.fabric.errors.clear()
    bed.ready("deactivate", stuck, lease)
