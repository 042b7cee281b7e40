"""The services of a DPU on real API servers with the CRDs of two versions of DPF, and the double of its controllers.

The DPUs are Nodes that a test puts into the DPU cluster. That leases have them: tests/dpf/test_life.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Ready, Wait
from blueprints.dpf import services as objects
from blueprints.dpf import site_of
from blueprints.dpu.dpf import leasing, revocation
from blueprints.dpu.dpf.config import Config
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf.services import DpfServices, open_services
from blueprints.kube import Dialect, KindUnknown
from blueprints.kube.dialect import bundled
from blueprints.specs import Asked, BlueprintView, LeaseView, ResourceView, Spec
from drydock.core.errors import Conflict, InvalidRequest
from interfaces.deadline import Deadline
from interfaces.dpu_services import Chart, DpuServices, Port, Service, ServiceState
from interfaces.errors import LeaseEnded, ServiceChanged, ServiceMissing, Unreachable
from tests.dpf.accounts import least
from tests.dpf.conftest import FLAVOR
from tests.dpus.api import CLUSTER, NODE, POD, SECRET, SERVICE, labels_of, name_of
from tests.dpus.conftest import _database as _database
from tests.dpus.services import PULL_ERROR, PULLING, STARTING
from tests.dpus.user import URL, User
from tests.dpus.world import WORLD, node_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
REPOSITORY = "oci://charts.example.org/doca"
CHARTS = ({"repository": REPOSITORY, "name": "firewall", "versions": ("1.2.0", "1.3.0")},)


def service(name: str = "edge", version: str = "1.2.0", **given: Any) -> Service:
    return Service(name=name, chart=Chart(repository=REPOSITORY, name="firewall", version=version), **given)


class Site:
    """A DPU cluster, and DPUs in it with leases."""

    def __init__(self, user: User, kubeconfig: str) -> None:
        self.user, self.kubeconfig, self.over = user, kubeconfig, set[int]()
        self.state = user.double.state
        spec: dict[str, Any] = {"type": "kamaji", "maxNodes": 10}
        if not user.double.generation.devices:
            spec["version"] = "v1.30.0"
        user.api.create(CLUSTER, {"metadata": {"name": "tenant", "labels": {"zone": "a"}}, "spec": spec})
        user.double.settle()
        secret = self.state.secret("tenant-admin-kubeconfig")
        self.nodes, self.cluster = self.state.links.open(secret), self.state.pod_links.open(secret)

    def dpu(self, number: int) -> dict[str, str]:
        """Put a DPU into the cluster; return its tags."""
        tags = {"drydock-installation": self.state.api.namespace, "drydock-resource": str(number)}
        labels = {**tags, WORLD: self.state.world.name}
        name = f"{self.state.api.namespace}-dpu{number}"
        self.nodes.create(NODE, {"metadata": {"name": name, "labels": labels}, "status": node_status(name)})
        return tags

    def lease(self, number: int, tags: dict[str, str], **config: Any) -> LeaseView:
        """Return an active lease on a DPU."""
        given = {
            "credential": "dpf", "namespace": self.state.api.namespace, "image": URL, "flavor": FLAVOR,
            "charts": CHARTS, **config,
        }  # fmt: skip
        blueprint = BlueprintView(
            id=1, name="dpus", kind="dpf", generation=1, config=Config(**given),
            credentials={"dpf": {"kubeconfig": self.kubeconfig}},
        )  # fmt: skip
        facts = {"name": "tenant", "namespace": self.state.api.namespace, "kubeconfig": ""}
        asked = Asked(type="dpu", requirements=None, amounts=Amounts(slots=1))

        def resource(key: str, **given: Any) -> ResourceView:
            return ResourceView(
                id=number, key=key, name=key, type="dpu", origin="built", blueprint=blueprint, attributes={},
                capacity=Amounts(slots=1), holders=lambda: [f"d-l{n}" for n in range(9) if n not in self.over], **given,
            )  # fmt: skip

        cluster = LeaseView(id=99, key="d-l99", owner="", asked=asked, resource=resource("tenant", facts=facts))
        held = LeaseView(
            id=number, key=f"d-l{number}", owner="ada", asked=asked,
            resource=resource(f"d-r{number}", parents={"cluster": cluster}),
        )  # fmt: skip
        opened = leasing.open_to_lease(self.spec(held, tags), {})
        assert isinstance(opened, Ready), opened
        return replace(held, facts=opened.facts, secrets=opened.secrets)

    def spec(self, lease: LeaseView, tags: dict[str, str]) -> Spec:
        return Spec(phase="activate", key=lease.key, resource=lease.resource, lease=lease, tags=tags)

    def services(self, lease: LeaseView) -> DpuServices:
        def still_mine() -> None:
            if lease.id in self.over:
                raise LeaseEnded

        opened = open_services(lease, still_mine)
        assert isinstance(opened, DpuServices)
        opened.default_timeout = 120.0  # type: ignore[misc]
        return opened

    def objects(self) -> list[str]:
        return [name_of(one) for one in self.user.all(SERVICE)]

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.all(POD)
        return found

    def turn(self) -> None:
        self.user.double.settle()

    def strays(self, lease: LeaseView, tags: dict[str, str]) -> list[str]:
        """Let a health check remove what was written for leases that are over; return the names."""
        with site_of(lease.resource.blueprint, tags, deadline=60.0) as there:
            return leasing.remove_strays(there, self.spec(lease, tags))

    def step(self, act: Callable[[Spec, Any], Answer], lease: LeaseView, tags: dict[str, str]) -> Answer:
        """Call a step until it is done, and let DPF work in between. Returns its last answer."""
        for _ in range(10):
            answer = act(self.spec(lease, tags), {})
            if not isinstance(answer, Wait):
                return answer
            self.turn()
        return answer


@pytest.fixture
def site(dpf: User) -> Site:
    return Site(dpf, least(dpf))


def test_a_service_is_applied_changed_and_removed(site: Site) -> None:
    tags = site.dpu(1)
    site.dpu(2)
    services = site.services(site.lease(1, tags))
    made = services.apply(service(values={"a": 1.0, "rules": ["x"]}, labels={"team": "net"}))
    assert (made.state, made.messages) == (ServiceState.PENDING, ("No pod of the service exists yet.",))
    site.turn()
    shown = services.show("edge")
    assert (shown.state, shown.pods, shown.pods_ready) == (ServiceState.READY, 1, 1), shown
    (pod,) = site.pods()
    assert pod["spec"]["nodeName"].endswith("-dpu1")
    assert labels_of(pod)["team"] == "net"

    before = site.user.all(SERVICE)[0]["metadata"]["resourceVersion"]
    services.apply(service(values={"a": 1.0, "rules": ["x"]}, labels={"team": "net"}))
    assert site.user.all(SERVICE)[0]["metadata"]["resourceVersion"] == before, "the same service changes nothing"

    for version, values in (("1.2.0", {"a": 2}), ("1.3.0", {})):
        changed = services.apply(service(version=version, values=values))
        assert changed.state is ServiceState.PENDING
        assert "The last change has not been carried out yet." in services.show("edge").messages
        site.turn()
        assert services.show("edge").state is ServiceState.READY
        assert services.show("edge").service == service(version=version, values=values)
    (there,) = site.user.all(SERVICE)
    assert "values" not in there["spec"]["helmChart"]
    assert "team" not in there["spec"]["serviceDaemonSet"]["labels"]

    services.apply(service("alpha"))
    assert [one.service.name for one in services.list()] == ["alpha", "edge"]
    services.remove("edge")
    assert [one.state for one in services.list()] == [ServiceState.PENDING, ServiceState.REMOVING]
    with pytest.raises(Conflict):
        services.apply(service())
    site.turn()
    with pytest.raises(ServiceMissing):
        services.show("edge")
    services.remove("edge")
    assert [labels_of(one)[objects.NAME] for one in site.pods()] == ["alpha"]


def test_what_cannot_be_installed_is_refused_and_nothing_is_written(site: Site) -> None:
    services = site.services(site.lease(1, site.dpu(1)))
    ports = (Port(name="metrics", port=9100),)
    if site.user.double.generation.devices:
        services.apply(service("ported", ports=ports))
        assert services.show("ported").service.ports == ports
        services.remove("ported")
        site.turn()
    else:
        with pytest.raises(InvalidRequest) as refused:
            services.apply(service(ports=ports))
        assert refused.value.field == "ports"
    with pytest.raises(InvalidRequest) as refused:
        services.apply(service(version="1.2.1"))
    assert refused.value.field == "chart.version"
    assert site.objects() == []


def test_the_end_of_a_lease_leaves_nothing_of_it_and_nothing_of_others_is_touched(site: Site) -> None:
    tags, others = site.dpu(1), site.dpu(2)
    lease, other = site.lease(1, tags), site.lease(2, others)
    for one in (lease, other):
        site.services(one).apply(service())
    site.turn()
    assert len(site.pods()) == 2
    site.over.add(1)
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    site.turn()
    assert site.objects() == [objects.name_of(other.key, "edge")]
    assert [labels_of(one)[objects.LEASE] for one in site.pods()] == [other.key]
    shown = site.services(other).show("edge")
    assert shown.state is ServiceState.READY
    with pytest.raises(LeaseEnded):
        site.services(lease).list()


@pytest.mark.parametrize("phase", ["activate", "destroy"])
def test_the_next_lease_and_the_destruction_begin_without_services_of_former_ones(site: Site, phase: str) -> None:
    tags, others = site.dpu(1), site.dpu(2)
    former, other = site.lease(1, tags), site.lease(2, others)
    for one in (former, other):
        site.services(one).apply(service())
    site.turn()
    following = replace(site.lease(1, tags), id=3, key="d-l3")
    act = getattr(Dpf(), phase)()[0].act
    assert isinstance(site.step(act, following, tags), Ready)
    site.turn()
    assert site.objects() == [objects.name_of(other.key, "edge")]


@pytest.mark.parametrize("kind", ["create", "replace"])
def test_a_request_that_comes_after_the_release_leaves_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lease = site.lease(1, site.dpu(1))
    services = site.services(lease)
    if kind == "replace":
        services.apply(service(values={"a": 1.0}))
    write = getattr(DpfServices, kind)

    def released(self: DpfServices, *given: Any) -> Any:
        site.over.add(1)
        return write(self, *given)

    monkeypatch.setattr(DpfServices, kind, released)
    with pytest.raises(LeaseEnded):
        services.apply(service(values={"a": 2.0}))
    monkeypatch.undo()
    site.turn()
    left = [objects.definition(one) for one in _read(site, lease)]
    assert left == ([service(values={"a": 1.0})] if kind == "replace" else [])


def _read(site: Site, lease: LeaseView) -> list[Any]:
    with site_of(lease.resource.blueprint, lease.secrets[leasing.PROOF], deadline=60.0) as there:
        return list(there.ours(objects.KIND))


def test_the_health_check_removes_services_of_leases_that_are_over(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.services(lease).apply(service())
    site.turn()

    assert site.strays(lease, tags) == []
    site.over.add(1)
    assert site.strays(lease, tags) == [objects.name_of(lease.key, "edge")]
    site.turn()
    assert site.objects() == []


def test_a_write_meets_exactly_the_version_that_was_read(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    services, backend = site.services(lease), DpfServices(lease, lease.secrets[leasing.PROOF])
    services.apply(service())
    before = backend.find("edge", Deadline(60))
    site.turn()
    assert backend.find("edge", Deadline(60)).version == before.version, "the status is not part of it"
    after = backend.replace(service(values={"a": 1}), before, Deadline(60))
    for write in (
        lambda: backend.replace(service(), before, Deadline(60)),
        lambda: backend.remove(before, Deadline(60)),
    ):
        with pytest.raises(ServiceChanged):
            write()
    with pytest.raises(ServiceChanged):
        backend.create(service(), Deadline(60))
    backend.remove(after, Deadline(60))
    site.turn()
    with pytest.raises(ServiceChanged):
        backend.replace(service(), after, Deadline(60))
    assert site.objects() == []
    again = backend.create(service(values={"a": 1}), Deadline(60))
    assert again.version != after.version
    with pytest.raises(ServiceChanged):
        backend.remove(after, Deadline(60))
    backend.remove(again, Deadline(60))
    site.turn()
    backend.remove(again, Deadline(60))


def test_a_service_that_does_not_start_says_why(site: Site) -> None:
    services, faults = site.services(site.lease(1, site.dpu(1))), site.state.faults
    faults.stick(PULLING, kind="DPUService")
    services.apply(service())
    site.turn()
    shown = services.show("edge")
    assert shown.state is ServiceState.PENDING
    assert any(PULL_ERROR in one for one in shown.messages)
    faults.release(PULLING, kind="DPUService")
    faults.stick(STARTING, kind="DPUService")
    site.turn()
    shown = services.show("edge")
    assert (shown.state, shown.pods_ready) == (ServiceState.FAILED, 0)
    assert "CrashLoopBackOff" in shown.messages[0]
    faults.release(STARTING, kind="DPUService")
    site.turn()
    assert services.show("edge").state is ServiceState.READY


def test_finished_hooks_are_left_out(site: Site) -> None:
    services = site.services(site.lease(1, site.dpu(1)))
    services.apply(service(values={"hook": True}))
    site.turn()
    assert len(site.pods()) == 2
    shown = services.show("edge")
    assert (shown.state, shown.pods) == (ServiceState.READY, 1)


def test_a_release_waits_for_finalizers_and_names_them(site: Site) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    site.services(lease).apply(service())
    site.state.faults.keep_finalizer("DPUService")
    site.turn()
    answer = site.step(leasing.remove_own, lease, tags)
    assert isinstance(answer, Wait)
    assert "dpu.nvidia.com/dpuservice" in answer.sentence
    assert site.services(lease).show("edge").state is ServiceState.REMOVING
    site.state.faults.finalizers.clear()
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    assert site.objects() == []


def test_objects_of_others_are_not_touched(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    services, name = site.services(lease), objects.name_of(lease.key, "edge")
    source = {"repoURL": REPOSITORY, "version": "9.9.9", "releaseName": "theirs"}
    node = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}
    spec = {"helmChart": {"source": source}, "serviceDaemonSet": {"nodeSelector": node}}
    site.state.stranger.create(SERVICE, {"metadata": {"name": name}, "spec": spec})
    assert services.list() == ()
    with pytest.raises(Conflict) as refused:
        services.apply(service())
    assert name in str(refused.value)
    services.remove("edge")
    assert site.objects() == [name]


def test_what_others_changed_is_told_and_never_forced(site: Site) -> None:
    services = site.services(site.lease(1, site.dpu(1)))
    services.apply(service(values={"a": 1}))
    services.apply(service(values={"a": 2}))
    (there,) = site.objects()

    def change(body: dict[str, Any]) -> None:
        body["spec"]["helmChart"]["source"]["version"] = "6.6.6"

    site.state.stranger.change(SERVICE, there, change)
    site.turn()
    shown = services.show("edge")
    assert shown.state is ServiceState.PENDING
    assert any("ChangedByOthers" in one for one in shown.messages)
    with pytest.raises(Conflict, match="stranger owns"):
        services.apply(service(values={"a": 3}))
    assert site.user.all(SERVICE)[0]["spec"]["helmChart"]["source"]["version"] == "6.6.6"
    services.remove("edge")
    site.turn()
    assert site.objects() == []


def test_a_dpu_cluster_that_cannot_be_read_is_told_and_services_can_be_removed(site: Site) -> None:
    services = site.services(site.lease(1, site.dpu(1)))
    services.apply(service())
    site.turn()
    site.user.api.delete(SECRET, "tenant-admin-kubeconfig")
    shown = services.show("edge")
    assert shown.state is ServiceState.PENDING
    assert shown.messages[0].startswith("Its pods could not be read: DPUCluster tenant has no secret")
    services.remove("edge")
    assert services.show("edge").state is ServiceState.REMOVING


def test_a_server_that_does_not_answer_is_told(site: Site) -> None:
    lease = site.lease(1, site.dpu(1))
    blueprint = lease.resource.blueprint
    gone = {"dpf": {"kubeconfig": _elsewhere(site.kubeconfig)}}
    resource = replace(lease.resource, blueprint=replace(blueprint, credentials=gone))
    with pytest.raises(Unreachable):
        site.services(replace(lease, resource=resource)).list()


def _elsewhere(kubeconfig: str) -> str:
    import yaml

    found = yaml.safe_load(kubeconfig)
    found["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    return yaml.safe_dump(found)


def test_an_account_from_before_needs_no_right_to_services_until_there_are_charts(dpf: User) -> None:
    site = Site(dpf, least(dpf, without=("DPUService",)))
    tags = site.dpu(1)
    without, with_charts = site.lease(1, tags, charts=()), site.lease(1, tags)
    assert isinstance(site.step(leasing.remove_former, without, tags), Ready)
    answer = site.step(leasing.remove_former, with_charts, tags)
    assert isinstance(answer, Failed)
    assert "dpuservices" in answer.message
    assert "drydock kube role" in answer.message


@pytest.mark.parametrize("act", [leasing.remove_former, revocation.revoke_former])
def test_no_server_is_asked_what_is_left_on_a_dpu_that_was_built_for_the_lease(site: Site, act: Any) -> None:
    tags = site.dpu(1)
    lease = site.lease(1, tags)
    blueprint = replace(lease.resource.blueprint, credentials={"dpf": {"kubeconfig": _elsewhere(site.kubeconfig)}})
    for fresh, expected in ((lambda: True, Ready), (lambda: False, Wait)):
        resource = replace(lease.resource, blueprint=blueprint, fresh=fresh)
        assert isinstance(act(site.spec(replace(lease, resource=resource), tags), {}), expected)


def test_a_server_without_services_is_told_if_there_are_charts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = site.dpu(1)
    without, with_charts = site.lease(1, tags, charts=()), site.lease(1, tags)
    known = bundled()[f"dpf-{site.user.double.generation.name}"]
    lacking = Dialect(types=tuple(one for one in known.types if one.type.kind != objects.KIND))
    for module in ("config", "access"):
        monkeypatch.setattr(f"blueprints.dpf.{module}.dialect_of", lambda *_, **__: lacking)
    (told,) = Dpf().check_blueprint(with_charts.resource.blueprint)
    assert (told.field, "has no kind DPUService" in told.message) == ("kind", True)
    assert list(Dpf().check_blueprint(without.resource.blueprint)) == []
    for lease in (without, with_charts):
        assert isinstance(site.step(leasing.remove_former, lease, tags), Ready)
        assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
    with pytest.raises(KindUnknown):
        site.services(with_charts).list()


def test_a_lease_from_before_has_no_services(site: Site) -> None:
    tags = site.dpu(1)
    lease = replace(site.lease(1, tags), secrets={})
    with pytest.raises(Conflict, match="began under a version"):
        site.services(lease)
    assert isinstance(site.step(leasing.remove_own, lease, tags), Ready)
