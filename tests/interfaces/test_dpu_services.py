"""Services on a DPU: what is refused, what ready means, and that nothing stays of a lease that ended meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.deadline import Deadline
from interfaces.dpu_services import AllowedChart, Chart, Condition, Pod, Port, Service, ServiceState
from interfaces.dpu_services.contract import MOST
from interfaces.dpu_services.fake import FakeDpuServices
from interfaces.dpu_services.helm import DEEPEST, LARGEST
from interfaces.errors import ConnectionLost, LeaseEnded, ServiceChanged, ServiceMissing
from tests.interfaces.dpus import Lease
from tests.interfaces.dpus import lease as lease

REPOSITORY = "oci://charts.example.org/doca"
CHART = Chart(repository=REPOSITORY, name="firewall", version="1.2.0")
ALLOWED = (AllowedChart(repository=f"{REPOSITORY}/", name="firewall", versions=("1.2.0", "1.3.0")),)


def service(name: str = "edge", **given: Any) -> Service:
    return Service(name=name, **{"chart": CHART, **given})


@pytest.fixture
def services(lease: Lease) -> FakeDpuServices:
    return FakeDpuServices(still_mine=lease, allowed=ALLOWED)


def test_a_service_is_applied_shown_listed_changed_and_removed(services: FakeDpuServices) -> None:
    wanted = service(values={"rules": [{"drop": True}]}, ports=(Port(name="metrics", port=9100),), labels={"a": "b"})
    status = services.apply(wanted)
    assert (status.state, status.pods, status.pods_ready, status.messages) == (ServiceState.READY, 1, 1, ())
    assert services.show("edge").service == wanted
    services.apply(service("alpha"))
    assert [one.service.name for one in services.list()] == ["alpha", "edge"]
    newer = service(chart=Chart(repository=REPOSITORY, name="firewall", version="1.3.0"))
    assert services.apply(newer).service == services.show("edge").service == newer
    services.remove("edge")
    services.remove("edge")
    with pytest.raises(ServiceMissing):
        services.show("edge")


def test_a_service_of_the_blueprint_can_be_neither_changed_nor_removed(services: FakeDpuServices) -> None:
    services.apply(service())
    mine = services.backend.find("edge", Deadline(9.0))
    assert mine is not None
    services.backend.find = lambda *_: replace(mine, of_blueprint=True)  # type: ignore[method-assign]
    assert services.show("edge").of_blueprint
    for write in (lambda: services.apply(service(values={"a": 2})), lambda: services.remove("edge")):
        with pytest.raises(Conflict, match="belongs to the blueprint") as refused:
            write()
        assert refused.value.field == "name"
    assert services.backend.writes == [("create", "edge")]


def test_the_same_service_again_changes_nothing(services: FakeDpuServices) -> None:
    services.apply(service(values={"a": 1}))
    services.apply(service(values={"a": 1}))
    assert services.backend.writes == [("create", "edge")]
    services.apply(service(values={"a": 2}))
    assert services.backend.writes == [("create", "edge"), ("replace", "edge")]


def test_numbers_and_flags_that_are_equal_in_python_are_a_change(services: FakeDpuServices) -> None:
    for value in (1, True, 1.0, "1"):
        services.apply(service(values={"a": [value]}))
        shown = services.show("edge").service.values["a"][0]
        assert (shown, type(shown)) == (value, type(value))
    assert len(services.backend.writes) == 4
    services.apply(service(values={"b": 2, "a": 1}))
    services.apply(service(values={"a": 1, "b": 2}))
    assert len(services.backend.writes) == 5
    assert len({service(), service(), service(values={"a": 1})}) == 2


def test_a_service_goes_through_json() -> None:
    ports = (Port(name="dns", port=53, protocol="UDP"),)
    given = service(values={"a": [1, {"b": "ü\n"}]}, ports=ports, labels={"x/y": ""})
    assert Service.from_json(json.loads(json.dumps(given.to_json()))) == given
    assert "ü" not in repr(given)


@pytest.mark.parametrize(
    ("chart", "field"),
    [
        ({"repository": "oci://elsewhere.example.org"}, "chart.repository"),
        ({"repository": "https://charts.example.org/doca"}, "chart.repository"),
        ({"name": "miner"}, "chart.name"),
        ({"version": "1.2.1"}, "chart.version"),
        ({"version": "1.2"}, "chart.version"),
    ],
)
def test_only_charts_of_the_allowlist_are_installed(services: FakeDpuServices, chart: Any, field: str) -> None:
    there = {"repository": REPOSITORY, "name": "firewall", "version": "1.2.0"}
    with pytest.raises(InvalidRequest) as refused:
        services.apply(service(chart=Chart(**{**there, **chart})))
    assert refused.value.field == field
    assert services.backend.writes == []


def test_no_chart_is_allowed_by_default() -> None:
    services = FakeDpuServices()
    with pytest.raises(InvalidRequest) as refused:
        services.apply(service())
    assert (refused.value.field, refused.value.hint) == ("chart.repository", "Allowed: none.")


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"image": {"tag": None}}, "values.image.tag"),
        ({"list": [1, None]}, "values.list.1"),
        ({"nodeSelector": {}}, "values.nodeSelector"),
        ({"deep": [{"node-selector": {"a": "b"}}]}, "values.deep.0.node-selector"),
        ({"nodeName": "host"}, "values.nodeName"),
        ({"pod": {"affinity": {}}}, "values.pod.affinity"),
        ({"tolerations": []}, "values.tolerations"),
        ({"controllerNodeSelector": {}}, "values.controllerNodeSelector"),
        ({"node_selectors": {}}, "values.node_selectors"),
        ({"webhook": {"podTolerations": []}}, "values.webhook.podTolerations"),
        ({"nodeAffinityPreset": {"type": "hard"}}, "values.nodeAffinityPreset"),
        ({"podAntiAffinityPreset": "hard"}, "values.podAntiAffinityPreset"),
        ({"topologySpreadConstraints": []}, "values.topologySpreadConstraints"),
        ({"targetNamespace": "kube-system"}, "values.targetNamespace"),
        ({"namespace": "kube-system"}, "values.namespace"),
        ({"namespaceOverride": "kube-system"}, "values.namespaceOverride"),
        ({"deployInCluster": True}, "values.deployInCluster"),
        ({"serviceDaemonSet": {"labels": {}}}, "values.serviceDaemonSet"),
        ({"dpuClusterSelector": {}}, "values.dpuClusterSelector"),
        ({"exposedPorts": {"ports": {"dns": True}}}, "values.exposedPorts"),
        ({"fullnameOverride": "another"}, "values.fullnameOverride"),
        ({"sub": {"nameOverride": "another"}}, "values.sub.nameOverride"),
        ({"extraObjects": []}, "values.extraObjects"),
        ({"extra_deploy": []}, "values.extra_deploy"),
        ({"global": {"extraManifests": "{}"}}, "values.global.extraManifests"),
        ({"podLabels": {"svc.dpu.nvidia.com/owned-by": "x"}}, "values.podLabels.svc.dpu.nvidia.com/owned-by"),
        ({"podLabels": {"dpu.nvidia.com/x": "x"}}, "values.podLabels.dpu.nvidia.com/x"),
        ({"podLabels": {"kubernetes.io/hostname": "x"}}, "values.podLabels.kubernetes.io/hostname"),
        ({"podLabels": {"drydock-lease": "x"}}, "values.podLabels.drydock-lease"),
        ({"": 1}, "values"),
        ({"a\nb": 1}, "values"),
        ({"a": {" b": 1}}, "values.a"),
        ({"x" * 254: 1}, "values"),
        ({7: 1}, "values"),
        ({"a": "\0"}, "values.a"),
        ({"a": "\ud800"}, "values.a"),
        ({"a": float("nan")}, "values.a"),
        ({"a": 1 << 63}, "values.a"),
        ({"a": b"bytes"}, "values.a"),
        ({"a": "x" * LARGEST}, "values"),
        ({"a": "ü" * (LARGEST // 2)}, "values"),
        ({"a": [0] * LARGEST}, "values"),
        (nested(DEEPEST + 1), "values"),
        ([], "values"),
        ("replicas: 2", "values"),
    ],
)
def test_values_are_refused_with_their_path(values: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        service(values=values)
    assert refused.value.field == field


def test_values_up_to_the_limits_are_accepted() -> None:
    assert service(values=nested(DEEPEST)).values == nested(DEEPEST)
    rest = LARGEST - len('{"a":""}')
    assert len(service(values={"a": "x" * rest}).values["a"]) == rest
    with pytest.raises(InvalidRequest):
        service(values={"a": "x" * (rest + 1)})


def test_later_changes_of_what_was_given_do_not_reach_the_service() -> None:
    values = {"a": {"b": 1}}
    made = service(values=values)
    values["a"]["nodeSelector"] = 2
    assert made.values == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"deployInCluster": True}, "deployInCluster"),
        ({"nodeSelector": {}}, "nodeSelector"),
        ({"dpuClusterSelector": {}}, "dpuClusterSelector"),
        ({"namespace": "x"}, "namespace"),
        ({"name": "Edge"}, "name"),
        ({"name": "-edge"}, "name"),
        ({"name": "e" * 41}, "name"),
        ({"name": "../x"}, "name"),
        ({"chart": {"repository": "http://a.example", "name": "a", "version": "1"}}, "chart.repository"),
        ({"chart": {"repository": "https://u:p@a.example", "name": "a", "version": "1"}}, "chart.repository"),
        ({"chart": {"repository": "https://a.example/x?y", "name": "a", "version": "1"}}, "chart.repository"),
        ({"chart": {"repository": "oci://a.example", "name": "../a", "version": "1"}}, "chart.name"),
        ({"chart": {"repository": "oci://a.example", "name": "a", "version": ">=1"}}, "chart.version"),
        ({"chart": {"repository": "oci://a.example", "name": "a", "version": "*"}}, "chart.version"),
        ({"chart": {"repository": "oci://a.example", "name": "a"}}, ""),
        ({"ports": [{"name": "a", "port": 0}]}, "ports"),
        ({"ports": [{"name": "a", "port": True}]}, "ports"),
        ({"ports": [{"name": "A b", "port": 1}]}, "ports"),
        ({"ports": [{"name": "1", "port": 1}]}, "ports"),
        ({"ports": [{"name": "a", "port": 1, "protocol": "SCTP"}]}, "ports"),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "ports"),
        ({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, "ports"),
        ({"ports": [{"name": f"p{n}", "port": n} for n in range(1, 34)]}, "ports"),
        ({"labels": {"svc.dpu.nvidia.com/x": "y"}}, "labels.svc.dpu.nvidia.com/x"),
        ({"labels": {"DPU.nvidia.com/x": "y"}}, "labels"),
        ({"labels": {"drydock-proof": "y"}}, "labels.drydock-proof"),
        ({"labels": {"a b": "y"}}, "labels"),
        ({"labels": {"/a": "y"}}, "labels"),
        ({"labels": {"a": "y z"}}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"labels": []}, "labels"),
    ],
)
def test_what_no_service_can_have_is_refused_with_its_field(given: dict[str, Any], field: str) -> None:
    fine = {"name": "edge", "chart": {"repository": REPOSITORY, "name": "firewall", "version": "1.2.0"}}
    with pytest.raises(InvalidRequest) as refused:
        Service.from_json({**fine, **given})
    assert refused.value.field == field


def test_ready_means_that_its_pods_are_not_that_something_says_so(services: FakeDpuServices) -> None:
    services.apply(service())
    crashing = Pod(
        name="edge-7", ready=False, reason="CrashLoopBackOff", message="back-off 5m0s restarting", restarts=12
    )
    services.backend.show("edge", conditions=(Condition(type="Ready", status="True"),), pods=(crashing,))
    found = services.show("edge")
    assert (found.state, found.pods, found.pods_ready) == (ServiceState.FAILED, 1, 0)
    assert found.messages == (
        "Pod edge-7 is not ready (Running, 12 restarts): CrashLoopBackOff back-off 5m0s restarting",
    )
    services.backend.show("edge", conditions=(Condition(type="Ready", status="True"),), pods=())
    assert services.show("edge").state is ServiceState.PENDING
    assert services.show("edge").messages == ("No pod of the service exists yet.",)
    services.backend.show("edge", pods=(Pod(name="edge-8"), Pod(name="edge-9", phase="Pending", ready=False)))
    assert services.show("edge").state is ServiceState.PENDING
    services.backend.show("edge", pods=(Pod(name="edge-8"),), current=False)
    assert services.show("edge").state is ServiceState.PENDING
    services.backend.show("edge", pods=(Pod(name="edge-8"),), current=True)
    assert services.show("edge").state is ServiceState.READY
    services.backend.show("edge", removing=True)
    assert services.show("edge").state is ServiceState.REMOVING


def test_pods_of_the_former_version_do_not_fail_a_change_that_may_cure_them(services: FakeDpuServices) -> None:
    services.apply(service())
    old = Pod(name="edge-7", ready=False, reason="ImagePullBackOff")
    services.backend.show("edge", pods=(old,), current=False)
    assert services.show("edge").state is ServiceState.PENDING
    services.backend.show("edge", current=True)
    assert services.show("edge").state is ServiceState.FAILED


def test_conditions_become_messages_and_are_bounded(services: FakeDpuServices) -> None:
    services.apply(service())
    bad = Condition(type="ApplicationsReady", status="False", reason="Degraded", message="chart not found")
    unknown = Condition(type="ConfigPortsReconciled", status="Unknown")
    services.backend.show("edge", pods=(), conditions=(bad, Condition(type="Ready", status="True"), unknown))
    assert services.show("edge").messages == (
        "ApplicationsReady is False: Degraded chart not found",
        "ConfigPortsReconciled is Unknown.",
        "No pod of the service exists yet.",
    )
    many = tuple(Condition(type=f"T{n}", status="False", message="x" * 10_000) for n in range(10_000))
    services.backend.show("edge", pods=(), conditions=many)
    messages = services.show("edge").messages
    assert len(messages) == 20
    assert max(map(len, messages)) <= 500


def test_pods_that_cannot_be_read_are_not_missing(services: FakeDpuServices) -> None:
    services.apply(service())
    services.backend.show("edge", pods=(), unread="The DPU cluster does not answer.")
    shown = services.show("edge")
    assert shown.state is ServiceState.PENDING
    assert shown.messages == ("Its pods could not be read: The DPU cluster does not answer.",)


def test_a_service_that_is_being_removed_is_not_applied(services: FakeDpuServices) -> None:
    services.apply(service())
    services.backend.show("edge", removing=True)
    with pytest.raises(Conflict, match="being removed"):
        services.apply(service(values={"a": 1}))


def test_a_lease_has_a_bounded_number_of_services(services: FakeDpuServices) -> None:
    for number in range(MOST):
        services.apply(service(f"s{number}"))
    with pytest.raises(Conflict, match=f"at most {MOST}"):
        services.apply(service("more"))
    services.apply(service("s1", values={"a": 1}))


def test_another_request_meanwhile_is_noticed_and_the_last_one_wins(services: FakeDpuServices) -> None:
    services.apply(service())
    backend = services.backend

    def meanwhile() -> None:
        backend.before_write = lambda: None
        backend.replace(service(values={"by": "another"}), backend.services["edge"], Deadline(5))

    backend.before_write = meanwhile
    assert services.apply(service(values={"by": "me"})).service.values == {"by": "me"}

    def removed() -> None:
        backend.services.clear()

    backend.before_write = removed
    assert services.apply(service(values={"by": "me again"})).service.values == {"by": "me again"}

    def always() -> None:
        there = backend.services["edge"]
        backend.show("edge")
        backend.services["edge"] = type(there)(service=there.service, version=there.version + "x")

    backend.before_write = always
    with pytest.raises(ServiceChanged):
        services.apply(service(values={"by": "nobody"}))


def test_a_lease_that_is_over_is_refused(services: FakeDpuServices, lease: Lease) -> None:
    services.apply(service())
    lease.end()
    for act in (
        lambda: services.apply(service()),
        services.list,
        lambda: services.show("edge"),
        lambda: services.remove("edge"),
    ):
        with pytest.raises(LeaseEnded):
            act()
    assert list(services.backend.services) == ["edge"]


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_a_service_that_is_created_after_the_lease_ended_is_removed(
    services: FakeDpuServices, lease: Lease, when: str
) -> None:
    setattr(services.backend, when, lease.end)
    with pytest.raises(LeaseEnded):
        services.apply(service())
    assert services.backend.services == {}
    assert services.backend.writes == [("create", "edge"), ("remove", "edge")]


def test_a_change_after_the_lease_was_lost_is_taken_back_and_nothing_is_created_anew(
    services: FakeDpuServices, lease: Lease
) -> None:
    old = service(values={"a": 1})
    services.apply(old)
    services.backend.after_write = lease.end
    with pytest.raises(LeaseEnded):
        services.apply(service(values={"a": 2}))
    assert services.backend.services["edge"].service == old

    def cleaned() -> None:
        lease.end()
        services.backend.services.clear()

    lease.over = False
    services.backend.after_write, services.backend.before_write = lambda: None, cleaned
    with pytest.raises(LeaseEnded):
        services.apply(service(values={"a": 3}))
    assert services.backend.services == {}


def test_a_lost_answer_is_taken_back_only_if_the_lease_is_over(services: FakeDpuServices, lease: Lease) -> None:
    def lost() -> None:
        services.backend.after_write = lambda: None
        raise ConnectionLost

    services.backend.after_write = lost
    with pytest.raises(ConnectionLost):
        services.apply(service())
    assert list(services.backend.services) == ["edge"]

    def lost_with_the_lease() -> None:
        lease.end()
        lost()

    services.backend.after_write = lost_with_the_lease
    with pytest.raises(ConnectionLost):
        services.apply(service("other"))
    assert list(services.backend.services) == ["edge"]


def test_what_cannot_be_taken_back_hides_no_error(
    services: FakeDpuServices, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable() -> None:
        lease.end()
        services.backend.before_write = lost

    def lost() -> None:
        raise ConnectionLost

    services.backend.after_write = unreachable
    with pytest.raises(LeaseEnded):
        services.apply(service(values={"password": "s3cret-value"}))
    assert "could not be taken back" in caplog.text
    assert "s3cret-value" not in caplog.text


def test_what_a_server_says_of_refused_values_is_not_logged(
    services: FakeDpuServices, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        raise ConnectionLost("spec.values: Invalid value: s3cret-value")

    def over() -> None:
        lease.end()
        services.backend.before_write = refused

    services.backend.after_write = over
    with pytest.raises(LeaseEnded):
        services.apply(service(values={"password": "s3cret-value"}))
    assert "edge of a lost lease could not be taken back: ConnectionLost" in caplog.text
    assert "s3cret-value" not in caplog.text


def by_the_next_owner(services: FakeDpuServices) -> Service:
    """Change the service as the owner does to whom the lease was transferred; return what it is then."""
    services.backend.before_write = lambda: None
    theirs = service(values={"by": "the next owner"})
    services.backend.replace(theirs, services.backend.services["edge"], Deadline(5))
    return theirs


def test_what_the_next_owner_changed_is_not_removed_when_a_write_is_taken_back(
    services: FakeDpuServices, lease: Lease
) -> None:
    def transferred() -> None:
        services.backend.after_write = lambda: None
        lease.end()
        services.backend.before_write = lambda: by_the_next_owner(services)

    services.backend.after_write = transferred
    with pytest.raises(LeaseEnded):
        services.apply(service())
    assert services.backend.services["edge"].service.values == {"by": "the next owner"}


def test_a_removal_by_the_former_owner_leaves_what_the_next_one_changed(
    services: FakeDpuServices, lease: Lease
) -> None:
    def transferred() -> None:
        by_the_next_owner(services)
        lease.end()

    services.apply(service())
    services.backend.before_write = transferred
    with pytest.raises(LeaseEnded):
        services.remove("edge")
    assert services.backend.services["edge"].service.values == {"by": "the next owner"}


def test_a_removal_wins_over_changes_of_the_same_owner(services: FakeDpuServices) -> None:
    services.apply(service())
    services.backend.before_write = lambda: by_the_next_owner(services) and None
    services.remove("edge")
    assert services.backend.services == {}


@pytest.mark.parametrize("read", ["list", "find"])
def test_what_was_read_after_the_lease_was_lost_is_not_shown(
    services: FakeDpuServices, lease: Lease, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    services.apply(service())
    there = getattr(services.backend, read)

    def late(*given: Any) -> Any:
        lease.end()
        return there(*given)

    monkeypatch.setattr(services.backend, read, late)
    with pytest.raises(LeaseEnded):
        services.list() if read == "list" else services.show("edge")


def test_it_leads_to_no_account(services: FakeDpuServices) -> None:
    with pytest.raises(NotSupported, match="A DPU service runs no commands"):
        services.transport.start(None, Deadline(1))  # type: ignore[arg-type]
    with pytest.raises(NotSupported):
        services.transport.files("")
    services.transport.close()
