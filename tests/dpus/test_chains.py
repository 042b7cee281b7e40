"""The double's controllers of chains and interfaces keep to what is known of DPF."""

from __future__ import annotations

import pytest

from tests.dpus.api import CHAIN, INTERFACE, SERVICE, SERVICE_CHAIN, SERVICE_INTERFACE, annotations_of
from tests.dpus.conditions import find, is_true
from tests.dpus.services import CONSUMED_BY, INTERFACES_RECONCILED
from tests.dpus.test_double import SERIAL, _pods, _service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NODE = {"matchLabels": {"drydock": "yes"}}


def _interface(dpf, name, kind, node=NODE, labelled=True, **block):
    template = {"spec": {"interfaceType": kind, kind: block}}
    template |= {"metadata": {"labels": {"interface": name}}} if labelled else {}
    spec = {"template": {"spec": {**({"nodeSelector": node} if node else {}), "template": template}}}
    return dpf.api.create(INTERFACE, {"metadata": {"name": name}, "spec": spec})


def _chain(dpf, name, *interfaces, node=NODE, within=None):
    ports = [{"serviceInterface": {"matchLabels": {"interface": one}}} for one in interfaces]
    template = {"spec": {"switches": [{"ports": ports}], **(within or {})}}
    spec = {"template": {"spec": {**({"nodeSelector": node} if node else {}), "template": template}}}
    return dpf.api.create(CHAIN, {"metadata": {"name": name}, "spec": spec})


def _there(dpf, kind):
    return [one for api in dpf.double.state.pod_links.apis for one in api.all(kind)]


def test_a_chain_is_ready_once_the_pod_of_its_service_runs_and_leaves_nothing(dpf):
    dpf.build(dpf.double.world.host("h1", [SERIAL]).cards[0])
    _service(dpf, serviceID="svc", interfaces=["net1"])
    _interface(dpf, "p0", "physical", interfaceName="p0")
    _chain(dpf, "web", "p0", "net1")
    dpf.double.settle()
    assert _pods(dpf) == []
    problem = find(dpf.api.get(SERVICE, "svc")["status"], INTERFACES_RECONCILED)
    assert (problem["status"], '"net1" not found' in problem["message"]) == ("False", True)
    assert not is_true(dpf.api.get(CHAIN, "web"), "Ready")
    assert is_true(dpf.api.get(INTERFACE, "p0"), "Ready")

    _interface(dpf, "net1", "service", serviceID="svc", network="mybrsfc", interfaceName="net1")
    dpf.double.settle()
    assert len(_pods(dpf)) == 1
    assert annotations_of(dpf.api.get(INTERFACE, "net1"))[CONSUMED_BY] == "svc"
    for kind, name in ((SERVICE, "svc"), (INTERFACE, "net1"), (CHAIN, "web")):
        assert is_true(dpf.api.get(kind, name), "Ready"), name
    (node,) = dpf.members()
    assert {one["spec"]["node"] for kind in (SERVICE_INTERFACE, SERVICE_CHAIN) for one in _there(dpf, kind)} == {node}

    for kind, name in ((CHAIN, "web"), (INTERFACE, "net1"), (INTERFACE, "p0"), (SERVICE, "svc")):
        dpf.api.delete(kind, name)
    dpf.double.settle()
    assert (dpf.all(CHAIN), dpf.all(INTERFACE), dpf.double.chains.left(), _pods(dpf)) == ([], [], [], [])


def test_interfaces_of_another_service_are_not_used(dpf):
    dpf.build(dpf.double.world.host("h1", [SERIAL]).cards[0])
    _interface(dpf, "net1", "service", serviceID="other", network="mybrsfc", interfaceName="net1")
    _service(dpf, serviceID="svc", interfaces=["net1"])
    dpf.double.settle()
    problem = find(dpf.api.get(SERVICE, "svc")["status"], INTERFACES_RECONCILED)
    assert "conflicting ServiceID" in problem["message"]
    assert _pods(dpf) == []


def test_what_would_be_connected_elsewhere_or_twice_is_a_violation(dpf):
    _interface(dpf, "everywhere", "pf", node=None, pfID=0)
    _interface(dpf, "unlabelled", "pf", labelled=False, pfID=0)
    _interface(dpf, "one", "physical", interfaceName="p0")
    _interface(dpf, "two", "physical", interfaceName="p0")
    _chain(dpf, "all", "one", "two", node=None)
    _chain(dpf, "named", "one", "two", within={"node": "n1"})
    _chain(dpf, "moved", "one", "two")
    dpf.double.settle()

    def move(body):
        body["spec"]["template"]["spec"]["nodeSelector"] = {"matchLabels": {"a": "b"}}

    dpf.api.change(CHAIN, "moved", move)
    dpf.double.settle()
    assert sorted(dpf.double.violations.take()) == [
        "DPUServiceChain all selects all nodes",
        "DPUServiceChain moved: drydock changed its spec",
        "DPUServiceChain named names a node, which the controllers do",
        "DPUServiceInterface everywhere selects all nodes",
        "DPUServiceInterface one and two are the same interface",
        "DPUServiceInterface unlabelled has no labels by which a chain could find it",
    ]
