"""Chains of a DPU: what is refused, that each interface is locked, and that none stays after the lease."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import (
    Chain,
    ChainLimits,
    Condition,
    DpuServices,
    ObjectState,
    Service,
)
from interfaces.dpu_services.chains import Chains
from interfaces.dpu_services.fake import FakeDpuServices, MemoryBackend
from interfaces.errors import ConnectionLost, LeaseEnded, ObjectMissing, ServiceChanged, ServiceMissing
from tests.interfaces.dpus import ALLOWED, CHART, Lease, service
from tests.interfaces.dpus import lease as lease
from tests.interfaces.dpus import other as other
from tests.interfaces.dpus import services as services


def chain(name: str = "web", *switches: list[str]) -> Chain:
    return Chain.of(name, switches or [["p0", "pf0vf3"]])


def locks(services: FakeDpuServices) -> set[str]:
    return {key.rpartition("/")[2] for key in services.locks.table}


def test_a_chain_is_connected_shown_listed_and_removed(services: FakeDpuServices) -> None:
    services.apply(service("net1", "net2"))
    wanted = chain("web", ["p0", "edge:net1"], ["edge:net2", "pf0vf3", "pf1"])
    made = services.chains.connect(wanted)
    assert (made.definition, made.state, made.messages) == (wanted, ObjectState.READY, ())
    assert services.chains.show("web") == made
    assert services.chains.connect(wanted) == made
    assert locks(services) == {"p0", "edge:net1", "edge:net2", "pf0vf3", "pf1"}
    services.chains.connect(chain("alpha", ["p1", "pf0"]))
    assert [one.definition.name for one in services.chains.list()] == ["alpha", "web"]
    with pytest.raises(Conflict, match="exists and is another one"):
        services.chains.connect(chain("web", ["p0", "edge:net1"]))
    services.chains.remove("web")
    services.chains.remove("web")
    assert locks(services) == {"p1", "pf0"}
    with pytest.raises(ObjectMissing):
        services.chains.show("web")


def test_a_chain_goes_through_json() -> None:
    given = chain("web", ["p0", "edge:net1"], ["pf1", "pf0vf10"])
    assert Chain.from_json(json.loads(json.dumps(given.to_json()))) == given


@pytest.mark.parametrize(
    ("name", "switches", "field"),
    [
        ("Web", [["p0", "pf0"]], "name"), ("a" * 41, [["p0", "pf0"]], "name"), ("web", [], "switches"),
        ("web", [["p0"]], "switches.0"), ("web", [["p0", "pf0"], []], "switches.1"), ("web", "p0", "switches"),
        ("web", ["p0"], "switches.0"), ("web", [["p0", "eth0"]], "switches.0.1"),
        ("web", [["p00", "pf0"]], "switches.0.0"), ("web", [["p0", "pf0vf03"]], "switches.0.1"),
        ("web", [["p0", "pf0\n"]], "switches.0.1"), ("web", [["p0", ""]], "switches.0.1"),
        ("web", [["p0", 7]], "switches.0.1"), ("web", [["p0", None]], "switches.0.1"),
        ("web", [["p0", "edge:"]], "switches.0.1"), ("web", [["p0", "edge:NET"]], "switches.0.1"),
        ("web", [["p0", "edge:net-1"]], "switches.0.1"), ("web", [["p0", "kube-system/edge:net1"]], "switches.0.1"),
        ("web", [["p0", "x" * 9999]], "switches.0.1"), ("web", [["p0", "p0"]], "switches"),
        ("web", [["p0", "pf0"], ["pf0", "p1"]], "switches"), ("web", [[f"pf0vf{n}" for n in range(33)]], "switches"),
        ("web", [["p0", "pf0"]] * 9, "switches"), ("web", [["p0", "pf2"]], "switches.0.1"),
        ("web", [["p2", "pf0"]], "switches.0.0"), ("web", [["p0", "pf0vf8"]], "switches.0.1"),
        ("web", [["p0", "pf2vf1"]], "switches.0.1"), ("web", [["p0", "pf0"], ["p1", "edge:net1"]], "switches.1.1"),
        ("web", None, "switches"), ("web", {"a": 1}, "switches"),
    ],
)  # fmt: skip
def test_bad_chains_are_refused_with_the_field_and_nothing_is_written(
    services: FakeDpuServices, name: Any, switches: Any, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.chains.connect(Chain.of(name, switches))
    assert refused.value.field == field
    assert services.connector.found == {}
    assert services.locks.table == {}


def test_too_many_chains_and_odd_names_are_refused(services: FakeDpuServices) -> None:
    many = FakeDpuServices(limits=ChainLimits(vfs=99))
    for number in range(Chains.most):
        many.chains.connect(chain(f"c{number}", [f"pf0vf{number}", f"pf1vf{number}"]))
    with pytest.raises(Conflict, match="at most 16"):
        many.chains.connect(chain("another", ["p0", "p1"]))
    for call in (services.chains.show, services.chains.remove):
        with pytest.raises(InvalidRequest) as refused:
            call("No")
        assert refused.value.field == "name"


def test_interfaces_of_a_service_must_be_there(services: FakeDpuServices) -> None:
    wanted = chain("web", ["p0", "edge:net1"])
    with pytest.raises(InvalidRequest, match="no service edge"):
        services.chains.connect(wanted)
    services.apply(service("net2"))
    with pytest.raises(InvalidRequest, match="no interface net1"):
        services.chains.connect(wanted)
    services.apply(service("net1", "net2"))
    services.backend.show("edge", removing=True)
    with pytest.raises(InvalidRequest, match="no service edge"):
        services.chains.connect(wanted)
    services.backend.show("edge", removing=False)
    assert services.locks.table == {}
    services.chains.connect(wanted)


def test_what_a_chain_uses_is_not_removed_and_the_chain_is_named(services: FakeDpuServices) -> None:
    services.apply(service("net1", "net2"))
    services.chains.connect(chain("web", ["p0", "edge:net1"]))
    for call in (lambda: services.remove("edge"), lambda: services.apply(service("net2"))):
        with pytest.raises(Conflict, match=r"edge:net1 is used by chain web"):
            call()
    assert services.show("edge").service == service("net1", "net2")
    services.apply(service("net1"))  # net2 is in no chain
    services.apply(service("net1", "net3"))
    services.chains.remove("web")
    services.remove("edge")
    with pytest.raises(ServiceMissing):
        services.show("edge")
    assert services.locks.table == {}


def test_two_leases_never_share_an_interface(services: FakeDpuServices, other: FakeDpuServices) -> None:
    services.chains.connect(chain("web", ["p0", "pf0vf3"]))
    with pytest.raises(Conflict, match="pf0vf3 is used by another lease"):
        other.chains.connect(chain("web", ["p1", "pf0vf3"]))
    assert locks(other) == {"p0", "pf0vf3"}, "all or none"
    with pytest.raises(Conflict, match="pf0vf3 is used by chain web"):
        services.chains.connect(chain("second", ["p1", "pf0vf3"]))
    services.chains.remove("web")
    other.chains.connect(chain("web", ["p1", "pf0vf3"]))
    for one in (services, other):  # their services have the same name, and are not the same
        one.apply(service("net1"))
        one.chains.connect(chain("own", ["edge:net1", "p0" if one is services else "pf1"]))
    with pytest.raises(Conflict, match="another lease"):
        services.chains.connect(chain("web", ["pf0", "pf0vf3"]))


def test_an_interface_is_locked_until_the_objects_of_its_chain_are_gone(services: FakeDpuServices) -> None:
    services.chains.connect(chain("web"))
    services.connector.kept.add("web")
    services.chains.remove("web")
    assert services.chains.show("web").state is ObjectState.REMOVING
    with pytest.raises(Conflict, match="is being removed"):
        services.chains.connect(chain("web"))
    with pytest.raises(Conflict, match="used by chain web"):
        services.chains.connect(chain("second", ["p1", "pf0vf3"]))
    del services.connector.found["web"]  # its finalizers are gone, and nobody has noticed
    services.chains.connect(chain("second", ["p1", "pf0vf3"]))
    services.chains.connect(chain("web", ["p0", "pf0vf4"]))
    assert locks(services) == {"p0", "p1", "pf0vf3", "pf0vf4"}


def test_a_chain_that_is_removed_meanwhile_is_taken_back(services: FakeDpuServices) -> None:
    services.connector.before_write = lambda: services.locks.drop("chain web")
    with pytest.raises(ServiceChanged, match="was removed meanwhile"):
        services.chains.connect(chain())
    assert services.connector.found == {}
    assert services.locks.table == {}


@pytest.mark.parametrize("answer", ["kept", "lost"])
def test_a_chain_of_a_lease_that_ended_meanwhile_is_taken_back(
    services: FakeDpuServices, lease: Lease, answer: str
) -> None:
    def ended() -> None:
        services.connector.after_write = lambda: None
        lease.end()
        if answer == "lost":
            raise ConnectionLost

    services.connector.after_write = ended
    with pytest.raises(LeaseEnded if answer == "kept" else ConnectionLost):
        services.chains.connect(chain())
    assert services.connector.found == {}


def test_a_chain_that_was_written_in_part_is_completed_or_removed(services: FakeDpuServices) -> None:
    def lost() -> None:
        services.connector.after_write = lambda: None
        services.connector.set("web", complete=False, ready=False)
        raise ConnectionLost

    services.connector.after_write = lost
    with pytest.raises(ConnectionLost):
        services.chains.connect(chain())
    shown = services.chains.show("web")
    assert (shown.state, shown.messages[0][:30]) == (ObjectState.PENDING, "Not all of its objects exist. ")
    assert services.chains.connect(chain()).state is ObjectState.READY
    services.chains.remove("web")
    assert services.locks.table == {}


def test_what_is_refused_is_taken_back(services: FakeDpuServices) -> None:
    def refused() -> None:
        services.connector.after_write = lambda: None
        raise InvalidRequest("spec: Invalid value")

    services.connector.after_write = refused
    with pytest.raises(InvalidRequest):
        services.chains.connect(chain())
    assert services.connector.found == {}
    assert services.locks.table == {}


def test_what_the_next_owner_connected_is_not_taken_back(services: FakeDpuServices, lease: Lease) -> None:
    theirs = chain("web", ["p1", "pf1"])

    def transferred() -> None:
        services.connector.after_write = lambda: None
        services.connector.set("web", definition=theirs)
        lease.end()

    services.connector.after_write = transferred
    with pytest.raises(LeaseEnded):
        services.chains.connect(chain())
    assert services.connector.found["web"].definition == theirs


@pytest.mark.parametrize("read", ["list", "find"])
def test_what_was_read_after_the_lease_was_lost_is_not_shown(
    services: FakeDpuServices, lease: Lease, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    services.chains.connect(chain())
    there = getattr(services.connector, read)

    def late(*given: Any) -> Any:
        lease.end()
        return there(*given)

    monkeypatch.setattr(services.connector, read, late)
    call: Callable[[], Any] = services.chains.list if read == "list" else lambda: services.chains.show("web")
    with pytest.raises(LeaseEnded):
        call()


def test_what_is_not_connected_says_why(services: FakeDpuServices) -> None:
    services.chains.connect(chain())
    wrong = Condition(type="ServiceChainSetReady", status="False", reason="Pending", message="x" * 900)
    right = Condition(type="ServiceChainSetReconciled", status="True")
    services.connector.set("web", ready=False, conditions=(right, wrong))
    shown = services.chains.show("web")
    assert shown.state is ObjectState.PENDING
    (message,) = shown.messages
    assert (message[:43], len(message)) == ("ServiceChainSetReady is False: Pending xxxx", 500)
    services.connector.set("web", conditions=())
    assert services.chains.show("web").messages == ("DPF has not reported on it yet.",)


def test_without_chains_there_are_none(lease: Lease) -> None:
    services = DpuServices(None, still_mine=lease, backend=MemoryBackend(), allowed=ALLOWED)
    for call in (
        services.chains.list, lambda: services.chains.connect(chain()), lambda: services.chains.show("web"),
        lambda: services.chains.remove("web"),
    ):  # fmt: skip
        with pytest.raises(NotSupported, match="no chains on this DPU"):
            call()
    with pytest.raises(InvalidRequest) as refused:
        services.apply(service("net1"))
    assert refused.value.field == "interfaces"
    services.apply(service())
    services.remove("edge")


@pytest.mark.parametrize(
    "wrong",
    [["eth0"], ["lo"], ["net-1"], ["NET"], ["a" * 16], ["net1"] * 2, [f"n{n}" for n in range(9)], "net1", [7]],
)
def test_odd_interfaces_of_a_service_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Service(name="edge", chart=CHART, interfaces=wrong)
    assert refused.value.field == "interfaces"


def test_a_service_without_interfaces_is_stored_as_before_there_were_any() -> None:
    assert "interfaces" not in service().to_json()
    given = service("net1")
    assert Service.from_json(json.loads(json.dumps(given.to_json()))) == given != service()
