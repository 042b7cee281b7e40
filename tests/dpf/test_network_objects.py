"""The networks of a lease as objects: what both versions of DPF accept, and what they cannot express. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.dpf import chains, networks
from blueprints.dpf.objects import Place
from blueprints.dpf.services import LEASE
from blueprints.kube.check import check
from blueprints.kube.dialect import bundled
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Chain, Network

PROOF = {"drydock-installation": "i1", "drydock-resource": "7"}
VERSIONS = ("24.10", "26.4")
SUBNET = Network(name="blue", subnet="10.20.1.0/24", addresses=32)
DIVIDED = Network(name="blue", network="10.20.0.0/20", prefix=24, gateway_index=1)


def place(version: str) -> Place:
    dialect = bundled()[f"dpf-{version}"]
    return Place(
        dialect=dialect, lease="d-l1", namespace="dpf", proof=PROOF, cluster={"zone": "a"}, network="mybrsfc"
    )  # fmt: skip


def written(version: str, network: Network) -> dict[str, Any]:
    made = networks.NETWORKS.manifests(place(version), network)
    for one in made:
        findings = check(one, bundled()[f"dpf-{version}"])
        assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
        assert one["metadata"]["name"] == "d-l1-blue"
        assert one["metadata"]["labels"] == {**PROOF, LEASE: "d-l1", networks.OF: "blue"}
        field = "dpuClusterSelector" if version == "26.4" else "clusterSelector"
        assert one["spec"].pop(field) == {"matchLabels": {"zone": "a"}}
    return {one["kind"]: one["spec"] for one in made}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("network", "spec"),
    [
        (SUBNET, {"ipv4Subnet": {"subnet": "10.20.1.0/24", "gateway": "10.20.1.1", "perNodeIPCount": 32}}),
        (DIVIDED, {"ipv4Network": {"network": "10.20.0.0/20", "prefixSize": 24, "gatewayIndex": 1}}),
    ],
)
def test_both_versions_accept_a_network_for_the_node_of_the_dpu(
    version: str, network: Network, spec: dict[str, Any]
) -> None:
    made = written(version, network)
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(PROOF.items())]
    assert made.pop(networks.IPAM) == {
        **spec, "metadata": {"labels": {LEASE: "d-l1", networks.OF: "blue"}},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": terms}]},
    }  # fmt: skip
    nad = {"resourceType": "sf", "bridge": "br-sfc", "ipam": True}
    assert made == ({networks.NAD: nad} if version == "26.4" else {})


def test_an_mtu_needs_a_server_with_nads() -> None:
    wide = Network(name="blue", subnet="10.20.1.0/24", mtu=9000)
    assert written("26.4", wide)[networks.NAD]["serviceMTU"] == 9000
    with pytest.raises(InvalidRequest) as refused:
        networks.NETWORKS.manifests(place("24.10"), wide)
    assert refused.value.field == "mtu"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_chain_gives_out_addresses_of_the_pool_of_its_network(version: str) -> None:
    chain = Chain.of("web", [["p0", "edge:net1@blue"]])
    made = chains.CHAINS.manifests(place(version), chain)
    for one in made:
        findings = check(one, bundled()[f"dpf-{version}"])
        assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
    inside = [one["spec"]["template"]["spec"]["template"]["spec"] for one in made]
    assert inside[1]["service"]["network"] == ("d-l1-blue" if version == "26.4" else "mybrsfc")
    ports = [port["serviceInterface"] for port in inside[2]["switches"][0]["ports"]]
    pool = written(version, SUBNET)[networks.IPAM]["metadata"]["labels"]
    assert [port.get("ipam") for port in ports] == [None, {"matchLabels": pool}]
