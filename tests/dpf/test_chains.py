"""Chains of a DPU on real API servers with the CRDs of two versions of DPF, and the double of its controllers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.dpf import chains as objects
from blueprints.dpu.dpf import leasing
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf.objects import DpfChains
from blueprints.kube import Dialect
from blueprints.kube.dialect import bundled
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, Chains, ObjectState, ServiceState
from interfaces.errors import LeaseEnded, ObjectMissing, ServiceChanged, Unreachable
from interfaces.slot_locks import SlotLocksInMemory
from tests.dpf.conftest import Died, least
from tests.dpf.test_services import Site, _elsewhere, service
from tests.dpus.api import CHAIN, INTERFACE, SERVICE, SERVICE_CHAIN, annotations_of, name_of
from tests.dpus.chains import CONNECTING, NOT_READY
from tests.dpus.conftest import _database as _database
from tests.dpus.services import NETWORKS
from tests.dpus.user import User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WEB = Chain.of("web", [["p0", "edge:net1"], ["edge:net2", "pf0vf3"]])
PLAIN = Chain.of("plain", [["p1", "pf1"]])


class Place(Site):
    """A DPU cluster whose DPUs have leases with chains."""

    def __init__(self, user: User, kubeconfig: str) -> None:
        super().__init__(user, kubeconfig)
        self.table: dict[str, tuple[str, str]] = {}

    def lease(self, number: int, tags: dict[str, str], **config: Any) -> LeaseView:
        found = super().lease(number, tags, **{"chains": {"vfs": 8}, **config})
        return replace(found, slot_locks=SlotLocksInMemory(found.key, self.table))

    def of(self, lease: LeaseView) -> Chains:
        return self.services(lease).chains

    def left(self) -> list[str]:
        """Return the objects of chains that are there, also those in the DPU cluster."""
        return [
            *(f"{kind.name} {name_of(one)}" for kind in (CHAIN, INTERFACE) for one in self.user.all(kind)),
            *self.user.double.chains.left(),
        ]


@pytest.fixture
def place(dpf: User) -> Place:
    return Place(dpf, least(dpf))


def test_a_chain_connects_a_service_and_ends_with_its_removal(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    place.dpu(2)
    services, chains = place.services(lease), place.of(lease)
    services.apply(service(interfaces=("net1", "net2")))
    place.turn()
    shown = services.show("edge")
    assert shown.state is ServiceState.PENDING
    assert any("d-l1-edge-net1" in one and "not found" in one for one in shown.messages), "it waits for the chain"
    with pytest.raises(ObjectMissing):
        chains.show("web")

    assert chains.connect(WEB).state is ObjectState.PENDING
    place.turn()
    assert chains.show("web").state is ObjectState.READY, chains.show("web")
    assert services.show("edge").state is ServiceState.READY
    (pod,) = place.pods()
    assert pod["spec"]["nodeName"].endswith("-dpu1")
    assert '"interface": "net1"' in annotations_of(pod)[NETWORKS]
    before = [one["metadata"]["resourceVersion"] for one in place.user.all(CHAIN)]
    assert chains.connect(WEB).state is ObjectState.READY
    assert [one["metadata"]["resourceVersion"] for one in place.user.all(CHAIN)] == before

    chains.connect(PLAIN)
    place.turn()
    assert [(one.definition.name, one.state) for one in chains.list()] == [
        ("plain", ObjectState.READY), ("web", ObjectState.READY),
    ]  # fmt: skip
    with pytest.raises(Conflict, match="edge:net1 is used by chain web"):
        services.remove("edge")
    with pytest.raises(Conflict, match="edge:net2 is used by chain web"):
        services.apply(service(interfaces=("net1",)))
    with pytest.raises(Conflict, match="pf0vf3 is used by chain web"):
        chains.connect(Chain.of("other", [["pf0", "pf0vf3"]]))

    chains.remove("web")
    assert chains.show("web").state is ObjectState.REMOVING
    with pytest.raises(Conflict, match="is being removed"):
        chains.connect(WEB)
    place.turn()
    assert [one.definition.name for one in chains.list()] == ["plain"]
    chains.connect(Chain.of("other", [["pf0", "pf0vf3"]]))
    for name in ("web", "plain", "other"):
        chains.remove(name)
    services.remove("edge")
    place.turn()
    assert (place.left(), place.objects()) == ([], [])
    for name in ("plain", "other"):
        chains.remove(name)
    assert place.table == {}


def test_a_lease_connects_interfaces_of_its_own_dpu_only(place: Place) -> None:
    one, other = place.lease(1, place.dpu(1)), place.lease(2, place.dpu(2))
    for lease in (one, other):  # of two cards
        place.of(lease).connect(PLAIN)
    place.turn()
    nodes = {spec["node"] for spec in _in_cluster(place)}
    assert len(nodes) == 2
    same = replace(other, resource=replace(other.resource, key=one.resource.key))
    with pytest.raises(Conflict, match="is used by another lease"):
        place.of(same).connect(Chain.of("more", [["p0", "pf1"]]))
    assert len(place.user.all(CHAIN)) == 2


def _in_cluster(place: Place) -> list[Any]:
    return [one["spec"] for one in place.cluster.all(SERVICE_CHAIN)]


@pytest.mark.parametrize(
    ("switches", "field"),
    [
        ([["p0", "pf0vf8"]], "switches.0.1"), ([["p2", "pf0"]], "switches.0.0"),
        ([["p0", "edge:net1"]], "switches.0.1"),
    ],
)  # fmt: skip
def test_bad_chains_are_refused_and_nothing_is_written(place: Place, switches: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        place.of(place.lease(1, place.dpu(1))).connect(Chain.of("web", switches))
    assert refused.value.field == field
    assert (place.left(), place.table) == ([], {})


def test_the_end_of_a_lease_leaves_nothing_of_it_and_nothing_of_others_is_touched(place: Place) -> None:
    tags, others = place.dpu(1), place.dpu(2)
    lease, other = place.lease(1, tags), place.lease(2, others)
    for one in (lease, other):
        place.services(one).apply(service(interfaces=("net1", "net2")))
        place.of(one).connect(WEB)
    place.turn()
    place.over.add(1)
    assert isinstance(place.step(leasing.remove_own, lease, tags), Ready)
    assert not [one for one in (*place.left(), *place.objects()) if "d-l1" in one]
    assert place.of(other).show("web").state is ObjectState.READY
    with pytest.raises(LeaseEnded):
        place.of(lease).list()


@pytest.mark.parametrize("phase", ["activate", "destroy"])
def test_the_next_lease_and_the_destruction_begin_without_chains_of_former_ones(place: Place, phase: str) -> None:
    tags = place.dpu(1)
    former = place.lease(1, tags)
    place.of(former).connect(PLAIN)
    place.turn()
    following = replace(place.lease(1, tags, chains=None), id=3, key="d-l3")
    assert isinstance(place.step(getattr(Dpf(), phase)()[0].act, following, tags), Ready)
    assert place.left() == []


def test_a_transfer_leaves_chains_to_the_new_owner(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).connect(PLAIN)
    for step in Dpf().hand_over():
        assert isinstance(place.step(step.act, lease, tags), Ready)
    place.turn()
    assert place.of(lease).show("plain").state is ObjectState.READY


def test_a_release_waits_for_finalizers_and_names_them(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).connect(PLAIN)
    place.state.faults.keep_finalizer(CHAIN.name)
    place.turn()
    answer = place.step(leasing.remove_own, lease, tags)
    assert isinstance(answer, Wait)
    assert "svc.dpu.nvidia.com/dpuservicechain" in answer.sentence
    assert place.of(lease).show("plain").state is ObjectState.REMOVING
    with pytest.raises(Conflict, match="used by chain plain"):
        place.of(lease).connect(Chain.of("second", [["p0", "pf1"]]))
    place.state.faults.finalizers.clear()
    assert isinstance(place.step(leasing.remove_own, lease, tags), Ready)
    assert place.left() == []


@pytest.mark.parametrize("dies_at", range(5))
def test_a_request_whose_process_dies_between_two_writes_is_completed_or_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.services(lease).apply(service(interfaces=("net1", "net2")))
    ensured, calls = DpfChains._ensured, []

    def dying(self: DpfChains, *given: Any) -> Any:
        if len(calls) == dies_at:
            raise Died
        calls.append(given)
        return ensured(self, *given)

    monkeypatch.setattr(DpfChains, "_ensured", dying)
    with pytest.raises(Died):
        place.of(lease).connect(WEB)
    monkeypatch.undo()
    place.turn()
    assert len(place.user.all(INTERFACE)) == min(dies_at, 4)
    if dies_at % 2:
        shown = place.of(lease).show("web")
        assert "Not all of its objects exist." in shown.messages[0]
        place.of(lease).connect(WEB)
        place.turn()
        assert place.of(lease).show("web").state is ObjectState.READY
        place.of(lease).remove("web")
    else:
        place.over.add(1)
        assert isinstance(place.step(leasing.remove_own, lease, tags), Ready)
    place.turn()
    assert place.left() == []


def test_a_removal_whose_process_dies_is_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = place.lease(1, place.dpu(1))
    chains = place.of(lease)
    chains.connect(PLAIN)
    place.turn()
    (interface, *_) = place.user.all(INTERFACE)
    place.user.api.delete(CHAIN, objects.name_of(lease.key, "plain"))  # and then the process died
    place.turn()
    assert "Not all of its objects exist." in chains.show("plain").messages[0]
    with pytest.raises(Conflict, match="used by chain plain"):
        chains.connect(Chain.of("second", [["p0", "pf1"]]))
    chains.remove("plain")
    place.turn()
    assert (place.left(), name_of(interface)[:4]) == ([], "d-l1")
    chains.connect(Chain.of("second", [["p0", "pf1"]]))


def test_a_request_that_comes_after_the_release_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = place.lease(1, place.dpu(1))
    create = DpfChains.create

    def released(self: DpfChains, *given: Any) -> Any:
        place.over.add(1)
        return create(self, *given)

    monkeypatch.setattr(DpfChains, "create", released)
    with pytest.raises(LeaseEnded):
        place.of(lease).connect(PLAIN)
    place.turn()
    assert place.left() == []


def test_the_health_check_removes_chains_of_leases_that_are_over(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).connect(PLAIN)
    place.turn()

    assert place.strays(lease, tags) == []
    place.over.add(1)
    assert sorted(place.strays(lease, tags)) == ["d-l1-p1", "d-l1-pf1", "d-l1-plain"]
    place.turn()
    assert place.left() == []


def test_what_is_not_connected_says_why(place: Place) -> None:
    chains = place.of(place.lease(1, place.dpu(1)))
    place.state.faults.stick(CONNECTING, kind=CHAIN.name)
    chains.connect(PLAIN)
    place.turn()
    shown = chains.show("plain")
    assert shown.state is ObjectState.PENDING
    assert f"DPUServiceChain d-l1-plain: ServiceChainSetReady is False: Pending {NOT_READY}" in shown.messages
    place.state.faults.release(CONNECTING, kind=CHAIN.name)
    place.turn()
    assert chains.show("plain").state is ObjectState.READY


def test_objects_of_others_are_not_touched(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    chains, name = place.of(lease), "d-l1-pf1"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"interfaceType": "pf", "pf": {"pfID": 1}}}
    spec = {"template": {"spec": {"nodeSelector": {"matchLabels": {"x": "y"}}, "template": template}}}
    place.state.stranger.create(INTERFACE, {"metadata": {"name": name}, "spec": spec})
    with pytest.raises(Conflict, match="is not one that Drydock can use"):
        chains.connect(PLAIN)
    place.turn()
    assert [name_of(one) for one in place.user.all(INTERFACE)] == [name], "what was written of the chain is gone"
    assert place.user.all(CHAIN) == []
    assert place.table == {}


def test_an_object_that_somebody_changed_is_told_and_not_used(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    chains = place.of(lease)
    chains.connect(PLAIN)
    place.turn()

    def move(body: dict[str, Any]) -> None:
        body["spec"]["template"]["spec"]["template"]["spec"]["pf"]["pfID"] = 0

    place.state.stranger.change(INTERFACE, "d-l1-pf1", move)
    place.user.api.delete(CHAIN, "d-l1-plain")
    place.turn()
    # The stranger, whose writes are tolerated, wrote within the same second as we did.
    assert place.user.double.violations.take() in ([], [f"{INTERFACE.name} d-l1-pf1: drydock changed its spec"])
    shown = chains.show("plain")
    assert any("d-l1-pf1: Unchanged is False" in one for one in shown.messages)
    with pytest.raises(ServiceChanged, match="changed by others"):
        chains.connect(PLAIN)
    place.turn()
    assert place.left() == []
    chains.connect(PLAIN)


def test_a_server_that_does_not_answer_is_told(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    gone = {"dpf": {"kubeconfig": _elsewhere(place.kubeconfig)}}
    resource = replace(lease.resource, blueprint=replace(lease.resource.blueprint, credentials=gone))
    with pytest.raises(Unreachable):
        place.of(replace(lease, resource=resource)).list()


def test_there_are_none_unless_the_config_allows_them(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags, chains=None)
    with pytest.raises(NotSupported):
        place.of(lease).list()
    with pytest.raises(InvalidRequest) as refused:
        place.services(lease).apply(service(interfaces=("net1",)))
    assert refused.value.field == "interfaces"
    assert place.user.all(SERVICE) == []
    assert isinstance(place.step(leasing.remove_own, lease, tags), Ready)


def test_an_account_from_before_needs_no_right_to_chains_until_they_are_allowed(dpf: User) -> None:
    place = Place(dpf, least(dpf, without=objects.CHAINS.kinds))
    tags = place.dpu(1)
    without, allowed = place.lease(1, tags, chains=None), place.lease(1, tags)
    assert isinstance(place.step(leasing.remove_former, without, tags), Ready)
    answer = place.step(leasing.remove_former, allowed, tags)
    assert isinstance(answer, Failed)
    assert "dpuservicechains" in answer.message
    assert "drydock kube role" in answer.message


def test_a_server_without_chains_is_told_if_the_config_allows_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = place.lease(1, place.dpu(1))
    known = bundled()[f"dpf-{place.user.double.generation.name}"]
    lacking = Dialect(types=tuple(one for one in known.types if one.type.kind not in objects.CHAINS.kinds))
    for module in ("config", "access"):
        monkeypatch.setattr(f"blueprints.dpf.{module}.dialect_of", lambda *_, **__: lacking)
    told = Dpf().check_blueprint(lease.resource.blueprint)
    assert [one.field for one in told] == ["kind", "kind"]
    assert "has no kind DPUServiceChain" in told[0].message
