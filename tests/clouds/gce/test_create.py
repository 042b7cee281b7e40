"""Creating: what is sent, that it happens once, and what becomes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from blueprints.cloud.faults import Meaning
from blueprints.cloud.values import Confidential, Instance, Market, Underway
from blueprints.gce import instances
from blueprints.gce.api import request_id
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from tests.clouds.gce.conftest import KEY, TAGS, USUAL, made, order, prepared, refused, until
from tests.clouds.gce.double import Double

INSERT = "compute.instances.insert"


def test_an_instance_is_made_and_read_back(double: Double, gce: Gce) -> None:
    it = made(gce)
    assert (it.key, it.location, it.zone, it.type) == ("dd-one", "us-central1", "us-central1-a", "n2-standard-2")
    assert it.tags == TAGS
    assert it.public_address == it.private_address
    assert it.public_address.startswith("127.30.")
    assert gce.instance("us-central1", it.zone, it.key, it.id) == it
    assert gce.find(USUAL) == it


def test_the_request_says_everything(double: Double, gce: Gce) -> None:
    made(gce)
    (seen,) = double.calls(INSERT)
    assert seen.query["requestId"] == request_id("attempt-1")
    items = {one["key"]: one["value"] for one in seen.body["metadata"]["items"]}
    assert items["user-data"] == "#cloud-config\n{}"
    assert items["ssh-keys"] == f"drydock:{KEY}"
    assert items["enable-guest-attributes"] == "TRUE"
    assert seen.body["tags"]["items"] == ["dd-one"]
    (disk,) = seen.body["disks"]
    assert disk["autoDelete"]
    assert disk["initializeParams"]["diskType"].endswith("/pd-balanced")
    assert disk["initializeParams"]["labels"] == TAGS
    assert seen.body["shieldedInstanceConfig"]["enableVtpm"]
    assert "maxRunDuration" not in seen.body["scheduling"]
    assert seen.body["scheduling"]["onHostMaintenance"] == "MIGRATE"


def test_a_create_says_that_it_is_underway(gce: Gce) -> None:
    said = gce.create(USUAL, {})
    assert isinstance(said, Underway)
    assert said.handle["operation"].startswith("operation-")
    assert isinstance(until(lambda: _instance(gce.created(USUAL, said.handle))), Instance)


def _instance(said: Instance | Underway) -> Instance | None:
    return said if isinstance(said, Instance) else None


def test_the_same_token_makes_one_instance(double: Double, gce: Gce) -> None:
    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(lambda _: gce.create(USUAL, {}), range(8)))
    assert len({one.handle["operation"] for one in said if isinstance(one, Underway)}) == 1
    double.settle()
    assert double.objects()["instances"] == ["dd-one"]
    first = gce.create(USUAL, {})
    assert isinstance(first, Instance)
    assert first == gce.find(USUAL)


def test_the_same_name_is_ours_or_refused(double: Double, gce: Gce) -> None:
    it = made(gce)
    assert gce.create(order(token="attempt-2"), {}) == it
    other = order(token="attempt-3", tags={**TAGS, "drydock-resource": "r-2"})
    error = refused(Meaning.INVALID, gce.create, other, {})
    assert error.provider_code == "alreadyExists"
    refused(Meaning.INVALID, gce.find, other)
    assert len(double.calls(INSERT)) == 3


def test_another_zone_is_another_instance(double: Double, gce: Gce) -> None:
    made(gce)
    made(gce, order(zone="us-central1-b", token="attempt-2"))
    assert double.objects()["instances"] == ["dd-one", "dd-one"]


def test_a_lost_answer_is_ambiguous_and_finding_settles_it(double: Double, gce: Gce) -> None:
    double.faults.lose(INSERT)
    refused(Meaning.AMBIGUOUS, gce.create, USUAL, {})
    double.settle()
    found = gce.find(USUAL)
    assert found is not None
    assert gce.create(USUAL, {}) == found
    assert double.objects()["instances"] == ["dd-one"]


def test_a_503_after_the_create_is_ambiguous(double: Double, gce: Gce) -> None:
    double.faults.answer_instead(INSERT)
    refused(Meaning.AMBIGUOUS, gce.create, USUAL, {})
    assert gce.find(USUAL) is not None


def test_an_answer_that_takes_too_long_is_ambiguous(double: Double) -> None:
    hasty = Gce(Credential(**double.credential), deadline=2.0)
    hasty.locations()
    double.faults.delay(INSERT, 4.0)
    refused(Meaning.AMBIGUOUS, hasty.create, USUAL, {})
    assert hasty.find(USUAL) is not None


def test_spot(double: Double, gce: Gce) -> None:
    it = made(gce, order(market=Market.SPOT))
    assert it.market is Market.SPOT
    said = double.calls(INSERT)[0].body["scheduling"]
    assert said["provisioningModel"] == "SPOT"
    assert said["instanceTerminationAction"] == "DELETE"
    assert said["onHostMaintenance"] == "TERMINATE"
    assert said["automaticRestart"] is False


@pytest.mark.parametrize(
    ("machine", "technology"),
    [
        ("n2d-standard-2", Confidential.SEV),
        ("n2d-standard-2", Confidential.SEV_SNP),
        ("c3-standard-4", Confidential.TDX),
    ],
)
def test_confidential(double: Double, gce: Gce, machine: str, technology: Confidential) -> None:
    made(gce, order(type=machine, confidential=technology))
    said = double.calls(INSERT)[0].body
    assert said["confidentialInstanceConfig"]["confidentialInstanceType"] == technology.value.upper()
    assert said["confidentialInstanceConfig"]["enableConfidentialCompute"]
    assert said["scheduling"]["onHostMaintenance"] == "TERMINATE"


def test_attached_gpus(double: Double, gce: Gce) -> None:
    it = made(gce, order(type="n1-standard-4+nvidia-tesla-t4:2"))
    assert it.type == "n1-standard-4+nvidia-tesla-t4:2"
    said = double.calls(INSERT)[0].body
    assert said["machineType"].endswith("/n1-standard-4")
    assert said["guestAccelerators"][0]["acceleratorCount"] == 2
    assert said["scheduling"]["onHostMaintenance"] == "TERMINATE"
    refused(Meaning.INVALID, gce.create, order(type="n1-standard-4+nvidia-tesla-t4"), {})


def test_built_in_gpus_and_hyperdisk(double: Double, gce: Gce) -> None:
    assert made(gce, order(type="g2-standard-4")).type == "g2-standard-4"
    made(gce, order(key="dd-two", token="2", type="c4-standard-4"))
    disk = double.calls(INSERT)[1].body["disks"][0]["initializeParams"]
    assert disk["diskType"].endswith("/hyperdisk-balanced")


def test_the_provider_ends_it(double: Double, gce: Gce) -> None:
    double.world.pace.second = 0.001
    it = made(gce, order(ends_after=60.0))
    said = double.calls(INSERT)[0].body["scheduling"]
    assert said["maxRunDuration"]["seconds"] == "60"
    assert said["instanceTerminationAction"] == "DELETE"
    until(lambda: gce.instance(it.location, it.zone, it.key, it.id) is None)
    assert double.objects() == {}


@pytest.mark.parametrize("seconds", [29.0, 120 * 86_400 + 1.0])
def test_what_the_provider_cannot_end_is_refused(double: Double, gce: Gce, seconds: float) -> None:
    error = refused(Meaning.INVALID, gce.create, order(ends_after=seconds), {})
    assert "120 days" in str(error)
    assert double.calls(INSERT) == []


def test_without_a_public_address(double: Double, gce: Gce) -> None:
    it = made(gce, order(public_address=False))
    assert it.public_address == ""
    assert it.private_address
    assert "accessConfigs" not in double.calls(INSERT)[0].body["networkInterfaces"][0]


def test_a_subnet_names_its_network_for_the_rule(double: Double, gce: Gce) -> None:
    wanted = order(network="regions/us-central1/subnetworks/inner")
    assert prepared(gce, wanted)["network"] == "projects/drydock-test/global/networks/prod"
    made(gce, wanted)
    card = double.calls(INSERT)[0].body["networkInterfaces"][0]
    assert card["subnetwork"] == "projects/drydock-test/regions/us-central1/subnetworks/inner"


def test_tags_that_are_no_labels_come_back_too(double: Double, gce: Gce) -> None:
    tags = {**TAGS, "Cost Centre": "R&D / 7", "drydock-note": "x" * 100}
    it = made(gce, order(tags=tags))
    assert it.tags == tags
    assert double.calls(INSERT)[0].body["labels"] == TAGS
    assert [one.id for one in gce.instances("", {"Cost Centre": "R&D / 7"})] == [it.id]
    assert gce.instances("", {"Cost Centre": "other"}) == []


@pytest.mark.parametrize("other", [{"key": "Bad_Name"}, {"zone": ""}, {"image": ""}, {"type": ""}])
def test_an_order_that_cannot_be_is_refused_here(double: Double, gce: Gce, other: dict[str, str]) -> None:
    refused(Meaning.INVALID, gce.create, order(**other), {})
    assert double.calls(INSERT) == []


@pytest.mark.parametrize(
    ("machine", "stays", "disk"),
    [
        ("n2-standard-2", True, "pd-balanced"), ("h3-standard-88", False, "pd-balanced"),
        ("h4d-highmem-192", False, "hyperdisk-balanced"), ("x4-megamem-960-metal", False, "hyperdisk-balanced"),
        ("c3-standard-192-metal", False, "hyperdisk-balanced"), ("c4-standard-4", True, "hyperdisk-balanced"),
        ("n4d-standard-2", True, "hyperdisk-balanced"), ("m4-megamem-28", True, "hyperdisk-balanced"),
        ("ct5lp-hightpu-1t", False, "pd-balanced"), ("ct6e-standard-1t", False, "hyperdisk-balanced"),
        ("a3-highgpu-1g", False, "pd-balanced"), ("a3-ultragpu-8g", False, "hyperdisk-balanced"),
        ("a4-highgpu-8g", False, "hyperdisk-balanced"), ("c3d-standard-4", True, "pd-balanced"),
    ],
)  # fmt: skip
def test_each_family_is_asked_for_as_it_can_be_had(
    double: Double, gce: Gce, machine: str, stays: bool, disk: str
) -> None:  # fmt: skip
    double.world.catalogue["types"].append({"name": machine, "guestCpus": 8, "memoryMb": 32768})
    wanted = order(type=machine)
    made(gce, wanted)
    said = instances.instance_body(wanted, "p")
    assert said["scheduling"]["on_host_maintenance"] == ("MIGRATE" if stays else "TERMINATE")
    assert said["disks"][0]["initialize_params"]["disk_type"].endswith(f"/{disk}")


def test_of_z3_google_chooses_unless_it_is_spot() -> None:
    assert "on_host_maintenance" not in instances.instance_body(order(type="z3-highmem-8-highlssd"), "p")["scheduling"]
    spot = instances.instance_body(order(type="z3-highmem-8-highlssd", market=Market.SPOT), "p")["scheduling"]
    assert spot["on_host_maintenance"] == "TERMINATE"


def test_a_persistent_disk_is_never_asked_for_where_only_hyperdisk_boots(gce: Gce) -> None:
    error = refused(Meaning.NOT_OFFERED, gce.create, order(type="n4-standard-4", disk_type="pd-ssd"), {})
    assert "n4-standard-4 boots only from Hyperdisk" in str(error)
