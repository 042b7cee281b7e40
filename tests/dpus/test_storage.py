"""The double's controllers of volumes and VPCs keep to what is known of DPF."""

from __future__ import annotations

import pytest

from tests.dpus.api import ATTACHMENT, INTERFACE, ISOLATION, POLICY, VIRTUAL_NETWORK, VOLUME, VPC, name_of
from tests.dpus.conditions import find, is_true
from tests.dpus.test_chains import NODE
from tests.dpus.test_double import SERIAL
from tests.dpus.vpcs import WAITS_FOR_NETWORKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
REQUEST = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _volume(new, name="data", policy="fast"):
    return new.api.create(VOLUME, {"metadata": {"name": name}, "spec": {"dpuStoragePolicyName": policy, **REQUEST}})


def _attachment(new, name="data", node="h1"):
    spec = {"dpuNodeName": node, "dpuVolumeName": name, "functionType": "pf", "hotplugFunction": True}
    return new.api.create(ATTACHMENT, {"metadata": {"name": name}, "spec": spec})


def _vpc(new, name, selector=NODE):
    new.api.create(
        VPC,
        {
            "metadata": {"name": name},
            "spec": {
                "tenant": "t", "isolationClassName": f"ovn-{new.double.world.name}", "interNetworkAccess": False,
                **({"nodeSelector": selector} if selector else {}),
            },
        },
    )  # fmt: skip
    ipam = {"ipv4": {"dhcp": True, "subnet": "10.30.1.0/24"}}
    spec = {"vpcName": name, "type": "Bridged", "externallyRouted": False, "bridgedNetwork": {"ipam": ipam}}
    new.api.create(VIRTUAL_NETWORK, {"metadata": {"name": name}, "spec": {**spec, "nodeSelector": NODE}})


def test_a_volume_needs_a_policy_and_its_attachment_the_only_dpu_of_a_node(new):
    host = new.double.world.host("h1", [SERIAL])
    new.double.state.admin.create(POLICY, {"metadata": {"name": "fast"}, "spec": {"dpuStorageVendors": ["v"]}})
    _volume(new)
    _volume(new, "lost", "lost")
    _attachment(new, node=host.name)
    new.double.settle()
    assert is_true(new.api.get(VOLUME, "data"), "Ready")
    assert not is_true(new.api.get(VOLUME, "lost"), "Scheduled")
    problem = find(new.api.get(ATTACHMENT, "data")["status"], "DPUAttached")
    assert problem["message"] == f"0 DPUs found for DPUNode {host.name}"
    new.build(host.cards[0])
    new.double.settle()
    assert is_true(new.api.get(ATTACHMENT, "data"), "Ready")
    new.api.delete(VOLUME, "data")
    new.double.settle()
    assert find(new.api.get(VOLUME, "data")["status"], "Ready")["message"] == "volume is attached"
    assert new.double.violations.take() == ["DPUVolume data was deleted before its attachment"]
    new.api.delete(ATTACHMENT, "data")
    new.api.delete(VOLUME, "lost")
    new.double.settle()
    assert (new.all(VOLUME), new.all(ATTACHMENT), new.double.storage.left()) == ([], [], [])


def test_a_vpc_is_kept_by_its_networks_and_these_by_interfaces(new):
    new.build(new.double.world.host("h1", [SERIAL]).cards[0])
    _vpc(new, "one")
    new.double.settle()
    assert find(new.api.get(VPC, "one")["status"], "Ready")["message"] == "Waiting for isolation class to be created"
    isolation = {"metadata": {"name": f"ovn-{new.double.world.name}"}, "spec": {"provisioner": "ovn"}}
    new.double.state.admin.create(ISOLATION, isolation)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"interfaceType": "pf", "pf": {"pfID": 0}}}
    template["spec"]["pf"]["virtualNetwork"] = "one"
    spec = {"template": {"spec": {"nodeSelector": NODE, "template": template}}}
    new.api.create(INTERFACE, {"metadata": {"name": "pf0"}, "spec": spec})
    new.double.settle()
    assert is_true(new.api.get(VPC, "one"), "Ready")
    (node,) = new.members()
    assert new.double.vpcs.members() == {node: f"{new.double.world.name}_one"}
    for kind in (VPC, VIRTUAL_NETWORK):
        new.api.delete(kind, "one")
    new.double.settle()
    assert find(new.api.get(VPC, "one")["status"], "Ready")["message"] == WAITS_FOR_NETWORKS
    assert new.double.violations.take() == ["DPUVirtualNetwork one was deleted before its interfaces"]
    new.api.delete(INTERFACE, "pf0")
    new.double.settle()
    assert (new.all(VPC), new.all(VIRTUAL_NETWORK), new.double.vpcs.members()) == ([], [], {})


def test_what_would_be_everywhere_or_twice_is_a_violation(new):
    new.build(new.double.world.host("h1", [SERIAL]).cards[0])
    isolation = {"metadata": {"name": f"ovn-{new.double.world.name}"}, "spec": {"provisioner": "ovn"}}
    new.double.state.admin.create(ISOLATION, isolation)
    for name, selector in (("all", None), ("one", NODE), ("two", NODE)):
        _vpc(new, name, selector)
    new.double.settle()
    found = new.double.violations.take()
    assert "DPUVPC all is for all nodes" in found
    (node,) = new.members()
    assert f"Node {node} is in the VPCs one and all" in found
    assert [name_of(one) for one in new.all(VPC)] == ["all", "one", "two"]
