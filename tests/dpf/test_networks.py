"""Networks of a DPU on real API servers with the CRDs of two versions of DPF, and the double of its controllers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Failed, Ready, Wait
from blueprints.dpf import networks as objects
from blueprints.dpu.dpf import leasing
from blueprints.dpu.dpf.config import Config
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf.objects import DpfNetworks
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, Network, Networks, ObjectState, ServiceState
from interfaces.errors import LeaseEnded, ObjectMissing
from tests.dpf.conftest import FLAVOR, Died, least
from tests.dpf.test_chains import Place
from tests.dpf.test_services import service
from tests.dpus.api import IPAM, NAD, annotations_of, name_of
from tests.dpus.chains import CONNECTING, NOT_READY
from tests.dpus.conftest import _database as _database
from tests.dpus.services import NETWORKS
from tests.dpus.user import URL, User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BLUE = Network(name="blue", subnet="10.20.1.0/24", addresses=32)
WIDE = Network(name="wide", network="10.20.16.0/22", prefix=24, gateway_index=1)


class Site(Place):
    """A DPU cluster whose DPUs have leases with networks."""

    def lease(self, number: int, tags: dict[str, str], **config: Any) -> LeaseView:
        return super().lease(number, tags, **{"networks": ("10.20.0.0/16",), **config})

    def networks(self, lease: LeaseView) -> Networks:
        return self.services(lease).networks

    def written(self) -> list[str]:
        kinds = (IPAM, NAD) if self.user.double.generation.devices else (IPAM,)
        return [f"{kind.name} {name_of(one)}" for kind in kinds for one in self.user.all(kind)]


@pytest.fixture
def site(dpf: User) -> Site:
    return Site(dpf, least(dpf))


def test_a_network_is_used_by_a_chain_and_ends_with_its_removal(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    services, networks, chains = site.services(lease), site.networks(lease), site.of(lease)
    services.apply(service(interfaces=("net1",)))
    web = Chain.of("web", [["p0", "edge:net1@blue"]])
    with pytest.raises(InvalidRequest, match="no network blue"):
        chains.connect(web)
    assert networks.create(BLUE).state is ObjectState.PENDING
    networks.create(WIDE)
    chains.connect(web)
    site.turn()
    assert [(one.definition, one.state) for one in networks.list()] == [
        (BLUE, ObjectState.READY), (WIDE, ObjectState.READY),
    ]  # fmt: skip
    assert chains.show("web").state is ObjectState.READY, chains.show("web")
    assert services.show("edge").state is ServiceState.READY
    (pod,) = site.pods()
    wanted = "d-l1-blue" if site.user.double.generation.devices else "mybrsfc"
    assert f'"name": "{wanted}"' in annotations_of(pod)[NETWORKS]
    with pytest.raises(Conflict, match="network blue is used by chain web"):
        networks.remove("blue")
    chains.remove("web")
    site.turn()
    chains.remove("web")
    networks.remove("blue")
    site.turn()
    with pytest.raises(ObjectMissing):
        networks.show("blue")
    networks.remove("blue")
    assert not [one for one in site.written() if "blue" in one]
    networks.create(Network(name="other", subnet="10.20.1.0/25"))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"subnet": "10.21.1.0/24"}, "subnet"), ({"subnet": "0.0.0.0/0"}, "subnet"),
        ({"network": "10.0.0.0/16", "prefix": 24}, "network"),
    ],
)  # fmt: skip
def test_ranges_beyond_the_config_are_refused_and_nothing_is_written(
    site: Site, given: dict[str, Any], field: str
) -> None:
    lease = site.lease(1, site.dpu(1))
    with pytest.raises(InvalidRequest) as refused:
        site.networks(lease).create(Network(name="blue", **given))
    assert refused.value.field == field
    assert (site.written(), site.table) == ([], {})


def test_an_mtu_is_refused_where_the_server_cannot_express_it(site: Site) -> None:
    networks = site.networks(site.lease(1, site.dpu(1)))
    wide = replace(BLUE, mtu=9000)
    if site.user.double.generation.devices:
        networks.create(wide)
        site.turn()
        assert networks.show("blue").state is ObjectState.READY
        assert site.user.all(NAD)[0]["spec"]["serviceMTU"] == 9000
    else:
        with pytest.raises(InvalidRequest) as refused:
            networks.create(wide)
        assert refused.value.field == "mtu"
        assert (site.written(), site.table) == ([], {})


def test_two_leases_never_share_addresses(site: Site) -> None:
    one, other = site.lease(1, site.dpu(1)), site.lease(2, site.dpu(2))
    site.networks(one).create(BLUE)
    with pytest.raises(Conflict, match="is used by another lease"):
        site.networks(other).create(Network(name="blue", network="10.20.0.0/22", prefix=26))
    site.networks(other).create(Network(name="blue", subnet="10.20.2.0/24"))
    site.turn()
    assert len(site.user.all(IPAM)) == 2


def test_the_end_of_a_lease_leaves_nothing_of_it_and_nothing_of_others_is_touched(site: Site) -> None:
    tags, others = site.dpu(1), site.dpu(2)
    lease, other = site.lease(1, tags), site.lease(2, others)
    site.networks(lease).create(BLUE)
    site.networks(other).create(WIDE)
    site.turn()
    site.over.add(1)
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert {one.split()[1] for one in site.written()} == {"d-l2-wide"}
    assert site.networks(other).show("wide").state is ObjectState.READY
    with pytest.raises(LeaseEnded):
        site.networks(lease).list()


@pytest.mark.parametrize("phase", ["activate", "destroy"])
def test_the_next_lease_and_the_destruction_begin_without_networks_of_former_ones(site: Site, phase: str) -> None:
    tags = site.dpu(1)
    site.networks(site.lease(1, tags)).create(BLUE)
    site.turn()
    following = replace(site.lease(1, tags, networks=()), id=3, key="d-l3")
    assert isinstance(site.step(getattr(Dpf(), phase)()[0].act, following, tags), Ready)
    assert site.written() == []


def test_a_release_waits_for_finalizers_and_names_them(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.networks(lease).create(BLUE)
    site.state.faults.keep_finalizer(IPAM.name)
    site.turn()
    answer = site.step(leasing.remove_own, lease, tags)
    assert isinstance(answer, Wait)
    assert "svc.dpu.nvidia.com/dpuserviceipam" in answer.sentence
    assert site.networks(lease).show("blue").state is ObjectState.REMOVING
    site.state.faults.finalizers.clear()
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert site.written() == []


def test_a_request_whose_process_dies_or_comes_after_the_release_leaves_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    create, ensured = DpfNetworks.create, DpfNetworks._ensured

    def dying(self: DpfNetworks, *given: Any) -> Any:
        ensured(self, *given)
        raise Died

    monkeypatch.setattr(DpfNetworks, "_ensured", dying)
    with pytest.raises(Died):
        site.networks(lease).create(BLUE)
    monkeypatch.undo()
    site.turn()
    assert site.networks(lease).create(BLUE).state is not ObjectState.REMOVING
    site.turn()
    assert site.networks(lease).show("blue").state is ObjectState.READY

    def released(self: DpfNetworks, *given: Any) -> Any:
        site.over.add(1)
        return create(self, *given)

    monkeypatch.setattr(DpfNetworks, "create", released)
    with pytest.raises(LeaseEnded):
        site.networks(lease).create(WIDE)
    monkeypatch.undo()
    site.turn()
    assert not [one for one in site.written() if "wide" in one]

    assert set(site.strays(lease, tags)) == {"d-l1-blue"}
    site.turn()
    assert site.written() == []


def test_what_is_not_ready_says_why(site: Site) -> None:
    networks = site.networks(site.lease(1, site.dpu(1)))
    site.state.faults.stick(CONNECTING, kind=IPAM.name)
    networks.create(BLUE)
    site.turn()
    shown = networks.show("blue")
    assert shown.state is ObjectState.PENDING
    assert f"DPUServiceIPAM d-l1-blue: DPUIPAMObjectReady is False: Pending {NOT_READY}" in shown.messages
    site.state.faults.release(CONNECTING, kind=IPAM.name)
    site.turn()
    assert networks.show("blue").state is ObjectState.READY


def test_there_are_none_unless_the_config_has_ranges(site: Site) -> None:
    lease = site.lease(1, site.dpu(1), networks=())
    with pytest.raises(NotSupported):
        site.networks(lease).list()
    for wrong in ({"networks": ("10.20.0.0/16",)}, {"networks": ("10.20.0.1/16",), "chains": {}}):
        with pytest.raises(ValueError, match="networks"):
            Config(credential="a", image=URL, flavor=FLAVOR, **wrong)  # type: ignore[arg-type]


def test_an_account_from_before_needs_no_right_to_networks_until_there_are_ranges(dpf: User) -> None:
    site = Site(dpf, least(dpf, without=objects.NETWORKS.kinds))
    tags = site.dpu(1)
    without, allowed = site.lease(1, tags, networks=()), site.lease(1, tags)
    assert isinstance(site.step(leasing.remove_former, without, tags), Ready)
    answer = site.step(leasing.remove_former, allowed, tags)
    assert isinstance(answer, Failed)
    assert "dpuserviceipams" in answer.message
