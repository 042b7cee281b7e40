"""What the unit of a workload may use: the amounts of its lease, and the devices that its group holds on the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blueprints.amounts import Amounts
from blueprints.specs import Asked, BlueprintView, LeaseView, ResourceView, UnitHost
from leases.workloads.units import of_unit

ASKED = {"image": "alpine", "command": ["train"], "cwd": "", "ports": ["8080/tcp"]}
HOST = UnitHost(transport=None, account="dd12-ab", uid=1003, gid=1004)  # type: ignore[arg-type]


def lease(pk: int, resource: int, *, locality: tuple[str, ...] = (), **given) -> LeaseView:
    blueprint = BlueprintView(id=1, name="b", kind="k", generation=1, config=None)
    there = ResourceView(
        id=resource, key=f"dd-x-1-r{resource}", name=f"r{resource}", type="host", origin="registered",
        blueprint=blueprint, attributes={}, capacity=Amounts(), locality=locality,
    )  # fmt: skip
    amounts = Amounts(slots=1, cpu_millicores=2500, ram_mib=1024)
    asked = Asked(type="host", requirements=None, amounts=amounts, exclusive=given.pop("exclusive", False))
    return LeaseView(id=pk, key=f"dd-x-1-l{pk}", owner="ada", asked=asked, resource=there, **given)


def device(pk: int, node: int, on: int, **facts) -> LeaseView:
    return lease(pk, 100 + pk, locality=(f"NUMA node {node}", "root bus 0000:00"), facts={
        "nodes": [f"/dev/nvidia{pk}"], "stands_on": on, "container_device": f"drydock.dev/gpu=gpu-{pk}", **facts,
    })  # fmt: skip


def options(words: list[str], name: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == name]


def test_a_unit_has_the_amounts_of_its_lease() -> None:
    host = lease(5, 1)
    made = of_unit(host, host, HOST, ASKED)
    assert made.unit is not None
    assert (made.unit.key, made.unit.account) == ("dd-x-1-l5", "dd12-ab")
    assert (made.unit.cpu_millicores, made.unit.ram_mib) == (2500, 1024)
    assert [str(port) for port in made.unit.ports] == ["8080/tcp"]
    assert (made.unit.devices, made.unit.memory_nodes) == ((), "")
    assert options(made.words, "--uidmap") == [f"0:{1003 << 16}:65536"]


@pytest.mark.parametrize(("host", "exclusive"), [(HOST, True), (replace(HOST, uid=None, gid=None), False)])
def test_a_lease_that_has_the_whole_host_has_no_limits(host, exclusive) -> None:
    whole = lease(5, 1, exclusive=exclusive)
    made = of_unit(whole, whole, host, ASKED)
    assert made.unit is not None
    assert (made.unit.cpu_millicores, made.unit.ram_mib) == (0, 0)
    assert bool(options(made.words, "--uidmap")) is exclusive


def test_devices_of_its_group_on_this_host_are_given_to_it_with_their_numa_nodes() -> None:
    others = (device(6, 1, on=5), device(7, 0, on=5), device(8, 2, on=99), device(9, 3, on=5, nodes=[]))
    host = lease(5, 1, members=lambda: others)
    made = of_unit(host, host, HOST, ASKED)
    assert made.unit is not None
    assert made.unit.devices == ("/dev/nvidia6", "/dev/nvidia7")
    assert made.unit.memory_nodes == "0,1"
    assert options(made.words, "--device") == ["drydock.dev/gpu=gpu-6", "drydock.dev/gpu=gpu-7"]
    assert options(made.words, "--uidmap") == ["0:1003:1"], "the nodes belong to the account"


def test_the_workload_of_a_device_runs_on_the_lease_of_its_host() -> None:
    below = lease(5, 1)
    gpu = replace(device(6, 1, on=0), parents={"host": below})
    made = of_unit(gpu, below, HOST, ASKED)
    assert made.unit is not None
    assert (made.unit.key, made.unit.account) == ("dd-x-1-l6", "dd12-ab")
    assert made.unit.devices == ("/dev/nvidia6",)


def test_without_a_name_of_cdi_the_nodes_are_given() -> None:
    host = lease(5, 1, members=lambda: (device(6, 1, on=5, container_device=""),))
    made = of_unit(host, host, HOST, ASKED)
    assert options(made.words, "--device") == ["/dev/nvidia6"]
