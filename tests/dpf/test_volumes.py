"""Volumes and VPCs of a DPU on real API servers, with the double of the controllers of DPF 26.4.

24.10 has neither, and is told so. The account has exactly the role that is printed for the config.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.dpf.services import LEASE
from blueprints.dpu.dpf import leasing
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf.objects import DpfObjects
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, ObjectState, Volume, Volumes, Vpc, Vpcs
from interfaces.errors import LeaseEnded, ObjectMissing
from tests.dpf.accounts import least
from tests.dpf.conftest import Died
from tests.dpf.test_chains import Place
from tests.dpf.test_services import service
from tests.dpus.api import ATTACHMENT, INTERFACE, ISOLATION, POLICY, VIRTUAL_NETWORK, VOLUME, VPC, Kind, name_of
from tests.dpus.conftest import _database as _database
from tests.dpus.conftest import new as new
from tests.dpus.conftest import old as old
from tests.dpus.storage import ATTACHING, NOT_BOUND, PROVIDING
from tests.dpus.user import User
from tests.dpus.vpcs import JOINING, UNSEEN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KINDS = (VOLUME, ATTACHMENT, VPC, VIRTUAL_NETWORK, INTERFACE)
DATA = Volume(name="data", policy="fast", size_gib=20)


class Site(Place):
    """A DPU cluster whose DPUs, each on the card of a host of its own, have leases with volumes and VPCs."""

    def __init__(self, user: User) -> None:
        self.isolation = f"ovn-{user.double.state.api.namespace}"
        self.allowed: dict[str, Any] = {
            "charts": [{"repository": "oci://charts.example.org/doca", "name": "firewall", "versions": ["1.2.0"]}],
            "chains": {"vfs": 8}, "volumes": {"policies": ("fast", "lost"), "largest_gib": 50},
            "vpcs": {"isolations": (self.isolation,), "subnets": ("10.30.0.0/16",), "vfs": 8},
        }  # fmt: skip
        super().__init__(user, least(user, config=self.allowed))
        self.hosts: dict[str, str] = {}
        if user.double.generation.devices:
            admin = self.state.admin
            admin.create(POLICY, {"metadata": {"name": "fast"}, "spec": {"dpuStorageVendors": ["vendor"]}})
            admin.create(
                ISOLATION, {"metadata": {"name": self.isolation}, "spec": {"provisioner": "ovn.vpc.dpu.nvidia.com"}}
            )

    def host(self, number: int, *serials: str) -> None:
        """Add the host of a DPU, by default with one card."""
        made = self.state.world.host(f"h{number}", [*serials] or [f"MT2400X0000{number}"])
        self.hosts[str(number)] = made.name
        self.user.double.storage.ready.add(made.name)

    def lease(self, number: int, tags: dict[str, str], **config: Any) -> LeaseView:
        found = super().lease(number, tags, **{**self.allowed, **config})
        if (on := tags["drydock-resource"]) not in self.hosts:
            self.host(int(on))
        card = replace(found.resource, facts={"node": self.hosts[on]})
        cluster = found.resource.parents["cluster"]
        parents = {"cluster": cluster, "card": replace(cluster, key="d-l98", resource=card)}
        return replace(found, resource=replace(found.resource, parents=parents))

    def volumes(self, lease: LeaseView) -> Volumes:
        return self.services(lease).volumes

    def vpcs(self, lease: LeaseView) -> Vpcs:
        return self.services(lease).vpcs

    def vpc(self, *ports: str, name: str = "lab", subnet: str = "10.30.1.0/24") -> Vpc:
        blue = {"name": "blue", "subnet": subnet, "interfaces": [*ports] or ["pf0vf1", "pf1"], "external": True}
        return Vpc.of(name, [blue], isolation=self.isolation)

    def there(self) -> list[str]:
        """Return the objects of volumes and VPCs that are there, and what DPF has made of them."""
        found = [f"{kind.name} {name_of(one)}" for kind in KINDS for one in self.user.all(kind)]
        double = self.user.double
        return [*found, *double.storage.left(), *double.vpcs.members(), *double.chains.left()]


@pytest.fixture
def site(new: User) -> Site:
    return Site(new)


def _ended(site: Site, lease: LeaseView, tags: dict[str, str]) -> None:
    site.over.add(lease.id)
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert site.there() == []


def test_a_volume_is_attached_to_the_host_and_ends_with_its_removal(site: Site) -> None:
    volumes = site.volumes(site.lease(1, site.dpu(1)))
    assert volumes.create(DATA).state is ObjectState.PENDING
    site.turn()
    shown = volumes.show("data")
    assert (shown.state, shown.definition) == (ObjectState.READY, DATA), shown
    assert shown.facts == {"device": "nvme-d-l1-data", "pci_address": "26:00.2"}
    (attachment,) = site.user.all(ATTACHMENT)
    assert attachment["spec"]["dpuNodeName"] == site.hosts["1"]
    before = [one["metadata"]["resourceVersion"] for kind in KINDS for one in site.user.all(kind)]
    assert volumes.create(DATA).state is ObjectState.READY
    assert [one["metadata"]["resourceVersion"] for kind in KINDS for one in site.user.all(kind)] == before
    volumes.remove("data")
    assert volumes.show("data").state is ObjectState.REMOVING
    with pytest.raises(Conflict, match="is being removed"):
        volumes.create(DATA)
    site.turn()
    with pytest.raises(ObjectMissing):
        volumes.show("data")
    volumes.remove("data")
    assert (site.there(), site.table) == ([], {})


def test_a_vpc_has_the_node_of_its_dpu_and_ends_with_its_removal(site: Site) -> None:
    tags = site.dpu(1)
    site.dpu(2)
    lease = site.lease(1, tags)
    services, vpcs = site.services(lease), site.vpcs(lease)
    services.apply(service(interfaces=("net1",)))
    vpcs.create(site.vpc("pf0vf1", "pf1", "edge:net1"))
    site.turn()
    assert vpcs.show("lab").state is ObjectState.READY, vpcs.show("lab")
    assert {node.rpartition("-")[2] for node in site.user.double.vpcs.members()} == {"dpu1"}
    with pytest.raises(Conflict, match="pf0vf1 is used by VPC lab"):
        site.of(lease).connect(Chain.of("web", [["p0", "pf0vf1"]]))
    with pytest.raises(Conflict, match="edge:net1 is used by VPC lab"):
        services.remove("edge")
    site.of(lease).connect(Chain.of("web", [["p0", "pf0"]]))
    vpcs.remove("lab")
    site.turn()
    assert vpcs.list() == ()
    vpcs.remove("lab")
    services.remove("edge")
    site.turn()
    assert site.of(lease).show("web").state is ObjectState.READY, "interfaces of the chain are not those of the VPC"
    site.of(lease).remove("web")
    site.turn()
    site.of(lease).remove("web")
    assert (site.there(), site.table) == ([], {})


def test_bad_ones_are_refused_and_nothing_is_written(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    for made, field in (
        (replace(DATA, policy="slow"), "policy"), (replace(DATA, size_gib=51), "size_gib"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as refused:
            site.volumes(lease).create(made)
        assert refused.value.field == field
    for vpc, field in (
        (site.vpc(subnet="10.31.0.0/24"), "networks.0.subnet"), (site.vpc("pf0vf8"), "networks.0.interfaces.0"),
        (replace(site.vpc(), isolation="other"), "isolation"), (site.vpc("edge:net1"), "networks.0.interfaces.0"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as refused:
            site.vpcs(lease).create(vpc)
        assert refused.value.field == field
    assert (site.there(), site.table) == ([], {})


def test_a_host_with_two_cards_has_no_volumes(site: Site) -> None:
    site.host(1, "MT2400X00001", "MT2400X00002")
    volumes = site.volumes(site.lease(1, site.dpu(1)))
    with pytest.raises(NotSupported, match=r"has 2 cards \(mt2400x00001, mt2400x00002\)"):
        volumes.create(DATA)
    assert (site.there(), site.table, volumes.list()) == ([], {}, ())


def test_two_leases_share_no_vpc_and_the_end_of_one_leaves_the_other(site: Site) -> None:
    tags, others = site.dpu(1), site.dpu(2)
    lease, other = site.lease(1, tags), site.lease(2, others)
    site.vpcs(lease).create(site.vpc())
    with pytest.raises(Conflict, match=r"10\.30\.1\.0 is used by another lease"):
        site.vpcs(other).create(site.vpc())
    same = replace(other, resource=replace(other.resource, key=lease.resource.key))
    with pytest.raises(Conflict, match="The DPU is in a VPC of another lease"):
        site.vpcs(same).create(site.vpc("pf0vf7", subnet="10.30.2.0/24"))
    site.vpcs(other).create(site.vpc(subnet="10.30.2.0/24"))
    for one in (lease, other):
        site.volumes(one).create(DATA)
    site.turn()
    site.over.add(1)
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert not [one for one in site.there() if "d-l1" in one]
    assert site.volumes(other).show("data").state is ObjectState.READY
    assert site.vpcs(other).show("lab").state is ObjectState.READY
    with pytest.raises(LeaseEnded):
        site.volumes(lease).list()
    _ended(site, other, others)


@pytest.mark.parametrize("phase", ["activate", "destroy"])
def test_the_next_lease_and_the_destruction_begin_without_those_of_former_ones(site: Site, phase: str) -> None:
    tags = site.dpu(1)
    former = site.lease(1, tags)
    site.volumes(former).create(DATA)
    site.vpcs(former).create(site.vpc())
    site.turn()
    following = replace(site.lease(1, tags, volumes=None, vpcs=None), id=3, key="d-l3")
    assert isinstance(site.step(getattr(Dpf(), phase)()[0].act, following, tags), Ready)
    assert site.there() == []


@pytest.mark.parametrize("kind", [ATTACHMENT, VOLUME, VIRTUAL_NETWORK, VPC])
def test_a_release_waits_for_finalizers_and_names_them(site: Site, kind: Kind) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    made: tuple[Volumes | Vpcs, Any] = (site.vpcs(lease), site.vpc())
    if kind in (ATTACHMENT, VOLUME):
        made = site.volumes(lease), DATA
    objects, definition = made
    objects.create(definition)
    site.state.faults.keep_finalizer(kind.name)
    site.turn()
    answer = site.step(leasing.remove_own, lease, tags)
    assert isinstance(answer, Wait)
    assert f"{kind.name} d-l1" in answer.sentence
    assert "finalizers" in answer.sentence
    assert objects.list()[0].state is ObjectState.REMOVING
    site.state.faults.finalizers.clear()
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert site.there() == []


@pytest.mark.parametrize("by", ["release", "remove", "check"])
def test_a_vpc_that_dpf_has_not_seen_yet_goes_after_its_networks(site: Site, by: str) -> None:
    """Without a finalizer, a DPUVPC would be gone at once, and leave its networks for ever: a violation."""
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.state.faults.stick(UNSEEN, kind=VPC.name)
    site.vpcs(lease).create(site.vpc())
    site.turn()
    assert [one["metadata"].get("finalizers") for one in site.user.all(VPC)] == [None]
    assert site.user.all(VIRTUAL_NETWORK)[0]["metadata"]["finalizers"]
    if by == "release":
        _ended(site, lease, tags)
        return
    for _ in range(2):  # the second time, it is alone
        if by == "remove":
            site.vpcs(lease).remove("lab")
        else:
            site.over.add(1)
            site.strays(lease, tags)
        site.turn()
    assert site.there() == []


@pytest.mark.parametrize(("what", "dies_at"), [("volumes", 1), ("vpcs", 1), ("vpcs", 2), ("vpcs", 3)])
def test_a_request_whose_process_dies_between_two_writes_is_completed_or_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, what: str, dies_at: int
) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    objects: Any = site.volumes(lease) if what == "volumes" else site.vpcs(lease)
    definition: Any = DATA if what == "volumes" else site.vpc()
    ensured, calls = DpfObjects._ensured, list[Any]()

    def dying(self: Any, *given: Any) -> Any:
        if len(calls) == dies_at:
            raise Died
        calls.append(given)
        return ensured(self, *given)

    monkeypatch.setattr(DpfObjects, "_ensured", dying)
    with pytest.raises(Died):
        objects.create(definition)
    monkeypatch.undo()
    site.turn()
    assert "Not all of its objects exist." in objects.list()[0].messages[0]
    if dies_at % 2:
        objects.create(definition)
        site.turn()
        assert objects.list()[0].state is ObjectState.READY, objects.list()
    _ended(site, lease, tags)


def test_a_request_that_comes_after_the_release_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    create = DpfObjects.create

    def released(self: Any, *given: Any) -> Any:
        site.over.add(1)
        return create(self, *given)

    monkeypatch.setattr(DpfObjects, "create", released)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: site.volumes(lease).create(DATA), lambda: site.vpcs(lease).create(site.vpc()),
    )  # fmt: skip
    for call in calls:
        site.over.clear()
        with pytest.raises(LeaseEnded):
            call()
    monkeypatch.undo()
    site.turn()
    strays = site.strays(lease, tags)
    site.turn()
    assert (site.there(), set(strays) <= {"d-l1-lab"}) == ([], True)


def test_the_health_check_removes_those_of_leases_that_are_over(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.volumes(lease).create(DATA)
    site.vpcs(lease).create(site.vpc("pf1"))
    site.turn()
    assert site.strays(lease, tags) == []
    site.over.add(1)
    assert sorted(site.strays(lease, tags)) == ["d-l1-data", "d-l1-data", "d-l1-lab", "d-l1-lab-blue", "d-l1-pf1"]
    site.turn()
    assert site.there() == []


def test_what_is_not_ready_says_why(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    volumes, vpcs, faults = site.volumes(lease), site.vpcs(lease), site.state.faults
    for kind, phase in ((VOLUME, PROVIDING), (ATTACHMENT, ATTACHING), (VPC, JOINING)):
        faults.stick(phase, kind=kind.name)
    volumes.create(DATA)
    volumes.create(replace(DATA, name="lost", policy="lost"))
    vpcs.create(site.vpc())
    site.turn()
    assert f"DPUVolume d-l1-data: Bound is False: Pending {NOT_BOUND}" in volumes.show("data").messages
    assert any("volume is not scheduled yet" in one for one in volumes.show("lost").messages)
    assert any("vpc ovn node agent" in one for one in vpcs.show("lab").messages)
    for kind, phase in ((VOLUME, PROVIDING), (VPC, JOINING)):
        faults.release(phase, kind=kind.name)
    site.turn()
    assert any("no function is free" in one for one in volumes.show("data").messages)
    assert (volumes.show("data").state, vpcs.show("lab").state) == (ObjectState.PENDING, ObjectState.READY)
    faults.release(ATTACHING, kind=ATTACHMENT.name)
    site.turn()
    assert volumes.show("data").state is ObjectState.READY


def test_objects_of_others_are_not_touched(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    spec = {
        "dpuStoragePolicyName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}
    }  # fmt: skip
    site.state.stranger.create(VOLUME, {"metadata": {"name": "d-l1-data", "labels": {LEASE: "d-l1"}}, "spec": spec})
    with pytest.raises(Conflict, match="is not one that Drydock can use"):
        site.volumes(lease).create(DATA)
    site.turn()
    assert site.there() == ["DPUVolume d-l1-data", "d-l1-data"]
    assert (site.volumes(lease).list(), site.table) == ((), {})


def test_a_transfer_leaves_them_to_the_new_owner(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.volumes(lease).create(DATA)
    site.vpcs(lease).create(site.vpc())
    for step in Dpf().hand_over():
        assert isinstance(site.step(step.act, lease, tags), Ready)
    site.turn()
    assert site.volumes(lease).show("data").state is ObjectState.READY
    assert site.vpcs(lease).show("lab").state is ObjectState.READY


def test_a_role_that_was_reduced_too_early_is_told(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.volumes(lease).create(DATA)
    site.turn()

    def reduce(role: Any) -> None:
        role["rules"] = [one for one in role["rules"] if one["apiGroups"] != [VOLUME.group]]

    name = f"{site.state.api.namespace}-dpf"
    site.state.admin.change(Kind("Role", "roles", "rbac.authorization.k8s.io", "v1"), name, reduce)
    reduced = site.lease(1, tags, volumes=None, vpcs=None)
    answer = site.step(leasing.remove_own, replace(reduced, facts=lease.facts), tags)
    assert isinstance(answer, Failed)
    assert "drydock kube role" in answer.message
    assert "dpuvolumeattachments" in answer.message
    assert isinstance(site.step(leasing.remove_own, reduced, tags), Ready), "a lease that never could have any"


def test_an_older_server_is_said_to_have_neither(old: User) -> None:
    site = Site(old)
    lease = site.lease(1, site.dpu(1))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: site.volumes(lease).create(DATA), lambda: site.vpcs(lease).create(site.vpc()),
    )  # fmt: skip
    for call, kind in zip(calls, (VOLUME, VPC), strict=True):
        with pytest.raises(NotSupported, match=f"This version of DPF has no .*{kind.name}"):
            call()
    assert (site.volumes(lease).list(), site.vpcs(lease).list(), site.table) == ((), (), {})
    told = Dpf().check_blueprint(lease.resource.blueprint)
    assert {(one.field, one.message.rpartition(" has no kind ")[2].partition(".")[0]) for one in told} == {
        ("volumes", VOLUME.name), ("volumes", ATTACHMENT.name), ("vpcs", VPC.name), ("vpcs", VIRTUAL_NETWORK.name),
    }  # fmt: skip
    assert "DPF 26.4 has it, and DPF 24.10 does not." in told[0].message
    tags = {"drydock-installation": site.state.api.namespace, "drydock-resource": "1"}
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
