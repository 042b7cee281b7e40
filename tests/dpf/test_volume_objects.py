"""Volumes and VPCs of a lease as objects: what DPF 26.4 accepts, and that 24.10 is told to have none. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blueprints.dpf import permissions, vpcs
from blueprints.dpf.chains import CHAINS
from blueprints.dpf.objects import Place
from blueprints.dpf.services import LEASE
from blueprints.dpf.volumes import VOLUMES
from blueprints.dpf.vpcs import VPCS
from blueprints.kube import Object
from blueprints.kube.check import check
from blueprints.kube.dialect import bundled
from drydock.core.errors import NotSupported
from interfaces.dpu_services import Volume, Vpc
from tests.dpf.objects import condition, made

PROOF = {"drydock-installation": "i1", "drydock-resource": "7"}
DATA = Volume(name="data", policy="fast", size_gib=20)
LAB = Vpc.of(
    "lab",
    [
        {"name": "blue", "subnet": "10.30.1.0/24", "interfaces": ["pf0vf1", "edge:net1"]},
        {"name": "red", "subnet": "10.30.2.0/24", "interfaces": ["pf1"], "external": True, "masquerade": False},
    ],
    isolation="ovn.vpc.dpu.nvidia.com",
)


def place(version: str = "26.4", namespace: str = "dpf") -> Place:
    return Place(
        dialect=bundled()[f"dpf-{version}"], lease="d-l1", namespace=namespace, proof=PROOF, cluster={"zone": "a"},
        network="mybrsfc", host="h1",
    )  # fmt: skip


def test_a_volume_is_attached_to_the_host_of_the_dpu() -> None:
    volume, attachment = VOLUMES.manifests(place(), DATA)
    for one in (volume, attachment):
        findings = check(one, place().dialect)
        assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
        assert one["metadata"]["labels"] == {**PROOF, LEASE: "d-l1", "drydock-volume": "data"}
    assert volume["spec"] == {
        "dpuStoragePolicyName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
        "resources": {"requests": {"storage": "20Gi"}},
    }  # fmt: skip
    assert attachment["spec"] == {
        "dpuNodeName": "h1", "dpuVolumeName": "d-l1-data", "functionType": "pf", "hotplugFunction": True,
    }  # fmt: skip


def test_the_objects_of_a_vpc_are_for_the_node_of_the_dpu_only() -> None:
    written = VPCS.manifests(place(), LAB)
    for one in written:
        findings = check(one, place().dialect)
        assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
    assert [one["kind"] for one in written] == [vpcs.VPC, vpcs.NETWORK, vpcs.NETWORK, *["DPUServiceInterface"] * 3]
    nodes = {"nodeSelector": {"matchLabels": PROOF}}
    assert written[0]["spec"] == {
        "tenant": "d-l1", "isolationClassName": "ovn.vpc.dpu.nvidia.com", "interNetworkAccess": False, **nodes,
    }  # fmt: skip
    assert written[2]["spec"] == {
        "vpcName": "d-l1-lab", "type": "Bridged", "externallyRouted": True, "masquerade": False, **nodes,
        "bridgedNetwork": {"ipam": {"ipv4": {"dhcp": True, "subnet": "10.30.2.0/24"}}},
    }  # fmt: skip
    inside = [one["spec"]["template"]["spec"] for one in written[3:]]
    assert [one["nodeSelector"] for one in inside] == [{"matchLabels": PROOF}] * 3
    kinds = [one["template"]["spec"] for one in inside]
    assert [one[one["interfaceType"]]["virtualNetwork"] for one in kinds] == ["d-l1-lab-blue"] * 2 + ["d-l1-lab-red"]


def test_the_name_of_a_vpc_with_its_namespace_is_the_value_of_a_label() -> None:
    for namespace in ("dpf-operator-system", "n" * 40):
        name = vpcs.name_of(place(namespace=namespace), "x" * 40)
        assert len(f"{namespace}_{name}") <= 63


def test_an_older_server_is_said_to_have_none() -> None:
    old = place("24.10").dialect
    for written, kind in ((VOLUMES, "DPUVolumeAttachment and no DPUVolume"), (VPCS, "DPUVirtualNetwork and no DPUVPC")):
        written.check_known(place().dialect)
        with pytest.raises(NotSupported, match=f"This version of DPF has no {kind}"):
            written.check_known(old)


def test_what_others_refer_to_goes_last_unless_dpf_keeps_it() -> None:
    vpc = made(vpcs.VPC, "d-l1-lab")
    kept = made(vpcs.VPC, "d-l1-lab", finalizers=["ovn.vpc.dpu.nvidia.com/vpc-protection"])
    assert VPCS.waits(vpcs.VPC, vpc, {vpcs.NETWORK})
    assert not VPCS.waits(vpcs.VPC, vpc, {"DPUVolume"})
    assert not VPCS.waits(vpcs.VPC, kept, {vpcs.NETWORK})
    assert not VPCS.waits(vpcs.NETWORK, vpc, {vpcs.VPC})
    assert not CHAINS.waits("DPUServiceInterface", vpc, {"DPUServiceChain"})


def test_a_volume_is_ready_with_its_attachment_and_names_its_device() -> None:
    ready = {"observedGeneration": 1, "conditions": [condition("Ready", "True")]}
    attached = {"dpu": {"deviceName": "nvme1n1", "pciAddress": "1:00.2", "nvmeAttrs": {"namespaceUUID": 7}}}
    objects = []
    for one in VOLUMES.manifests(place(), DATA):
        status = {**ready, **(attached if one["kind"] == "DPUVolumeAttachment" else {})}
        meta = {"labels": one["metadata"]["labels"], "annotations": one["metadata"]["annotations"]}
        objects.append(
            (one["kind"], made(one["kind"], one["metadata"]["name"], spec=one["spec"], status=status, **meta))
        )
    (found,) = VOLUMES.found(place(), objects)
    assert (found.definition, found.complete, found.ready) == (DATA, True, True)
    assert found.facts == {"device": "nvme1n1", "pci_address": "1:00.2"}, "an odd value is left out"
    (half,) = VOLUMES.found(place(), objects[:1])
    assert (half.complete, half.facts) == (False, {})


def test_a_listing_parses_and_writes_a_large_vpc_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [f"pf0vf{number}" for number in range(32)]
    large = Vpc.of(
        "large", [{"name": "blue", "subnet": "10.30.0.0/16", "interfaces": ports}], isolation="ovn.vpc.dpu.nvidia.com"
    )
    objects = [(one["kind"], Object.of(one)) for one in VPCS.manifests(place(), large)]
    counted = {"parse": 0, "specs": 0}
    for name in counted:
        real = getattr(VPCS, name)

        def count(*given: object, name: str = name, real: Callable[..., object] = real) -> object:
            counted[name] += 1
            return real(*given)

        monkeypatch.setattr(VPCS, name, count)
    (found,) = VPCS.found(place(), objects)
    assert (len(objects), found.definition, found.complete) == (34, large, True)
    assert max(counted.values()) <= 3


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_a_role_has_what_the_config_needs(version: str) -> None:
    def kinds(config: dict[str, object] | None) -> set[str]:
        found = permissions.permissions("dpf", bundled()[f"dpf-{version}"], config=config)
        return {one.type.kind for one in found.namespaced}

    least = kinds({"charts": [], "chains": None})
    newer = version == "26.4"
    assert not {kind for kind in least if kind.startswith(("DPUService", "DPUVolume", "DPUVPC"))}
    assert kinds({"chains": {}}) - least == {"DPUServiceChain", "DPUServiceInterface"}
    assert kinds({"volumes": {"policies": ["fast"]}}) - least == (
        {"DPUVolume", "DPUVolumeAttachment"} if newer else set()
    )
    vpc = {"DPUServiceInterface"} | ({"DPUVPC", "DPUVirtualNetwork"} if newer else set())
    assert kinds({"vpcs": {"isolations": ["ovn"], "subnets": ["10.30.0.0/16"]}}) - least == vpc
    assert kinds(None) >= least | vpc | {"DPUService", "DPUServiceCredentialRequest", "DPUServiceIPAM"}
