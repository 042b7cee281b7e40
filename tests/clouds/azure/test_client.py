"""Azure's client against a strict double of its API: making, finding, listing, ending."""

from __future__ import annotations

import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from blueprints.azure.account import Features
from blueprints.azure.client import Azure
from blueprints.azure.config import Credential
from blueprints.cloud.client import CAPABILITIES, capabilities
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Instance, Lifecycle, Market, Underway
from tests.clouds.azure.answers import Answer, Answers
from tests.clouds.azure.conftest import PUBLIC_KEY, TAGS, USUAL, Bench, order, until
from tests.clouds.azure.double import AzureDouble
from tests.clouds.azure.things import Machine

PARTS = {"dd-one", "dd-one-nic", "dd-one-ip", "dd-one-nsg", "dd-one-disk"}


def test_can_do_everything_but_end_machines_by_itself() -> None:
    assert {one.name for one in CAPABILITIES} - capabilities(Azure) == {"server-side-expiry"}


def test_a_machine_is_made_read_listed_and_ended_without_a_trace(bench: Bench) -> None:
    made = bench.made()

    assert (made.key, made.state, made.location, made.zone) == ("dd-one", Lifecycle.RUNNING, "eastus", "1")
    assert (made.type, made.market, made.image) == ("Standard_D2s_v5", Market.ON_DEMAND, USUAL.image)
    assert made.public_address.startswith("127.40.")
    assert made.private_address.startswith("127.40.")
    assert made.created_at is not None
    assert TAGS.items() <= made.tags.items()
    assert bench.read(made) == made
    assert bench.azure.find(USUAL) == made
    assert bench.azure.instances("eastus", TAGS) == [made]

    bench.azure.terminate(made)
    bench.azure.terminate(made)
    bench.swept()

    assert bench.double.objects() == {}
    assert bench.read(made) is None
    assert bench.azure.find(USUAL) is None
    bench.azure.terminate(made)
    assert bench.azure.sweep("eastus", "1", "dd-one", TAGS) == []


def test_every_object_bears_the_tags_and_goes_with_the_machine(bench: Bench) -> None:
    bench.made()
    objects = bench.double.objects()

    assert set(objects) == PARTS
    for name, found in objects.items():
        assert found["tags"] == {**TAGS, "drydock-attempt": "attempt-1"}, name
    machine, card = objects["dd-one"]["properties"], objects["dd-one-nic"]["properties"]
    assert machine["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    assert machine["networkProfile"]["networkInterfaces"][0]["properties"]["deleteOption"] == "Delete"
    assert card["ipConfigurations"][0]["properties"]["publicIPAddress"]["properties"]["deleteOption"] == "Delete"
    assert objects["dd-one-ip"]["sku"] == {"name": "Standard"}
    assert objects["dd-one-ip"]["properties"]["publicIPAllocationMethod"] == "Static"


def test_user_data_user_and_key_reach_the_machine(bench: Bench) -> None:
    bench.made(order(user_data='#cloud-config\n{"a": "\u00fc"}'))
    machine = bench.double.machine("dd-one")

    assert machine is not None
    assert machine.user_data == '#cloud-config\n{"a": "\u00fc"}'
    assert (machine.user, machine.public_key) == ("drydock", PUBLIC_KEY)
    assert bench.double.objects()["dd-one"]["properties"]["diagnosticsProfile"]["bootDiagnostics"] == {"enabled": True}


def test_only_ssh_is_let_in_and_only_from_where_the_order_says(bench: Bench) -> None:
    bench.made()
    rules = {
        one["name"]: one["properties"] for one in bench.double.objects()["dd-one-nsg"]["properties"]["securityRules"]
    }

    assert set(rules) == {"ssh-v4", "ssh-v6", "closed"}
    assert rules["ssh-v4"]["sourceAddressPrefix"] == "192.0.2.0/24"
    assert rules["ssh-v6"]["sourceAddressPrefix"] == "2001:db8::/32"
    assert {rules[name]["destinationPortRange"] for name in ("ssh-v4", "ssh-v6")} == {"2222"}
    assert (rules["closed"]["access"], rules["closed"]["protocol"], rules["closed"]["priority"]) == ("Deny", "*", 4096)
    assert all(one["direction"] == "Inbound" for one in rules.values())


def test_without_a_public_address_there_is_none(bench: Bench) -> None:
    made = bench.made(order(public_address=False))
    assert (made.public_address, bool(made.private_address)) == ("", True)
    assert set(bench.double.objects()) == PARTS - {"dd-one-ip"}


def test_the_network_is_made_once_shared_and_left(bench: Bench) -> None:
    first = bench.made()
    bench.made(order(key="dd-two", token="attempt-2"))
    network = bench.double.ground.things.of("Microsoft.Network/virtualNetworks")

    assert [one.name for one in network] == ["drydock-eastus"]
    assert network[0].body["tags"] == {"drydock-shared": "network", "drydock-installation": "i1"}
    assert network[0].properties["subnets"][0]["properties"]["defaultOutboundAccess"] is True
    bench.ended(first)
    assert [one.name for one in bench.double.ground.things.of("Microsoft.Network/virtualNetworks")] == [
        "drydock-eastus"
    ]


def test_a_subnet_of_the_operators_is_used_as_it_is(bench: Bench) -> None:
    bench.made()
    subnet = bench.double.ground.things.of("Microsoft.Network/virtualNetworks")[0].properties["subnets"][0]["id"]
    bench.made(order(key="dd-two", token="attempt-2", network=subnet))
    card = bench.double.objects()["dd-two-nic"]["properties"]
    assert card["ipConfigurations"][0]["properties"]["subnet"]["id"] == subnet


def test_a_spot_machine_that_is_taken_back_stays_deallocated_and_says_so(bench: Bench) -> None:
    made = bench.made(order(market=Market.SPOT))
    asked = bench.double.objects()["dd-one"]["properties"]
    billed = {"maxPrice": -1}

    assert made.market is Market.SPOT
    assert (asked["priority"], asked["evictionPolicy"], asked["billingProfile"]) == ("Spot", "Deallocate", billed)
    bench.double.evict("dd-one")
    taken = until(lambda: (found := bench.read(made)) and found.state is Lifecycle.STOPPED and found)
    assert taken.preempted
    bench.azure.terminate(taken)
    bench.swept()
    assert bench.double.objects() == {}


def test_a_confidential_machine(bench: Bench) -> None:
    wanted = order(
        type="Standard_DC2as_v5", confidential=Confidential.SEV_SNP, image="Canonical:ubuntu-24_04-lts:cvm:latest"
    )
    bench.made(wanted)
    asked = bench.double.objects()["dd-one"]["properties"]

    assert asked["securityProfile"]["securityType"] == "ConfidentialVM"
    assert asked["securityProfile"]["uefiSettings"] == {"secureBootEnabled": True, "vTpmEnabled": True}
    disk = asked["storageProfile"]["osDisk"]["managedDisk"]
    assert disk["securityProfile"] == {"securityEncryptionType": "VMGuestStateOnly"}


@pytest.mark.parametrize(
    ("size", "technology", "image", "meaning"),
    [
        ("Standard_D2s_v5", Confidential.SEV_SNP, "Canonical:ubuntu-24_04-lts:cvm:latest", Meaning.NOT_OFFERED),
        ("Standard_DC2s_v3", Confidential.TDX, "Canonical:ubuntu-24_04-lts:cvm:latest", Meaning.NOT_OFFERED),
        ("Standard_DC2as_v5", Confidential.TDX, "Canonical:ubuntu-24_04-lts:cvm:latest", Meaning.NOT_OFFERED),
        ("Standard_DC2as_v5", Confidential.SEV_SNP, USUAL.image, Meaning.NOT_OFFERED),
    ],
)
def test_a_confidential_order_is_checked_before_azure_is_asked(
    bench: Bench, size: str, technology: Confidential, image: str, meaning: Meaning
) -> None:
    wanted = order(type=size, confidential=technology, image=image)
    with pytest.raises(CloudError) as caught:
        bench.azure.create(wanted, bench.prepared(wanted))
    assert caught.value.meaning is meaning
    assert not [
        call for call in bench.double.calls if call.method == "PUT" and "/virtualmachines/" in call.path.lower()
    ]


@pytest.mark.parametrize(
    ("size", "image", "security"),
    [
        ("Standard_D2s_v5", USUAL.image, "TrustedLaunch"),
        ("Standard_D2s_v5", "Debian:debian-12:12:latest", None),
        ("Standard_A1_v2", "Debian:debian-12:12:latest", None),
    ],
)
def test_trusted_launch_where_image_and_size_have_it(bench: Bench, size: str, image: str, security: str | None) -> None:
    bench.made(order(type=size, image=image))
    asked = bench.double.objects()["dd-one"]["properties"].get("securityProfile") or {}
    assert asked.get("securityType") == security


def test_a_create_repeated_makes_one_machine(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    first = bench.azure.create(USUAL, prepared)
    again = bench.azure.create(USUAL, prepared)
    assert isinstance(first, Underway)
    assert first.handle["operation"].startswith("https://127.0.0.1")
    made = bench.finished(USUAL, again)

    assert bench.finished(USUAL, first) == made
    assert bench.azure.create(USUAL, prepared) == made
    assert [one.id for one in bench.azure.instances("", TAGS)] == [made.id]


def test_eight_at_once_make_one_machine(bench: Bench) -> None:
    def one(number: int) -> Instance:
        azure = Azure(Credential(**bench.double.credential()), deadline=10)
        try:
            return Bench(azure, bench.double).made()
        finally:
            azure.close()

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(one, range(8)))

    assert len({one.id for one in made}) == 1
    assert set(bench.double.objects()) == PARTS


def test_another_attempts_machine_is_in_the_way_and_somebody_elses_is_refused(bench: Bench) -> None:
    made = bench.made()
    prepared = bench.prepared(USUAL)
    with pytest.raises(CloudError) as caught:
        bench.azure.create(order(token="attempt-2"), prepared)
    assert caught.value.meaning is Meaning.CONFLICT
    assert bench.azure.find(order(token="attempt-2")) is None
    with pytest.raises(CloudError) as caught:
        bench.azure.create(order(tags={"drydock-installation": "other"}), prepared)
    assert caught.value.meaning is Meaning.INVALID
    with pytest.raises(CloudError) as caught:
        bench.azure.prepare(order(tags={"drydock-installation": "other"}))
    assert caught.value.meaning is Meaning.INVALID
    assert bench.read(made) == made


def test_what_an_earlier_attempt_left_elsewhere_is_in_the_way(bench: Bench) -> None:
    bench.prepared(USUAL)
    elsewhere = order(location="westeurope", token="attempt-2")
    with pytest.raises(CloudError) as caught:
        bench.azure.prepare(elsewhere)
    assert caught.value.meaning is Meaning.CONFLICT
    assert "still exists in eastus" in caught.value.message
    with pytest.raises(CloudError, match="still exists in zone") as caught:
        bench.azure.prepare(order(zone="2", token="attempt-3"))
    assert caught.value.meaning is Meaning.CONFLICT
    bench.swept()
    assert bench.made(elsewhere).location == "westeurope"


def test_a_sweep_takes_nothing_of_others(bench: Bench) -> None:
    bench.made()
    assert bench.azure.sweep("eastus", "1", "dd-one", {"drydock-installation": "other"}) == []
    assert set(bench.double.objects()) == PARTS


def test_a_sweep_alone_ends_what_was_prepared_and_the_machine_too(bench: Bench) -> None:
    bench.prepared(USUAL)
    assert set(bench.double.objects()) == PARTS - {"dd-one", "dd-one-disk"}
    bench.swept()
    assert bench.double.objects() == {}
    bench.made()
    bench.double.ground.duration = 30
    assert "dd-one" in bench.azure.sweep("eastus", "1", "dd-one", TAGS)
    bench.double.ground.duration = 0.05
    bench.double.finish_operations()
    bench.swept()
    assert bench.double.objects() == {}


def test_machines_of_all_locations_in_one_listing_over_pages(bench: Bench) -> None:
    for number in range(7):
        place, zone = ("eastus", "1") if number % 2 else ("westcentralus", "")
        bench.made(order(key=f"dd-{number}", token=f"attempt-{number}", location=place, zone=zone, type="Standard_B2s"))
    bench.made(order(key="dd-other", token="attempt", tags={"drydock-installation": "other"}))
    bench.double.calls.clear()

    found = bench.azure.instances("", {"drydock-installation": "i1"})

    assert [one.key for one in found] == [f"dd-{number}" for number in range(7)]
    assert {one.state for one in found} == {Lifecycle.RUNNING}
    assert len({one.public_address for one in found}) == 7
    # Eight machines, three to a page: three pages of each of four listings.
    assert len(bench.double.calls) == 12
    assert [one.key for one in bench.azure.instances("eastus", TAGS)] == ["dd-1", "dd-3", "dd-5"]


def test_an_attempt_without_zone(bench: Bench) -> None:
    made = bench.made(order(zone=""))
    assert made.zone == ""
    assert "zones" not in bench.double.objects()["dd-one"]


def test_the_hooks_start_and_end_something_real_for_a_machine() -> None:
    started: list[Machine] = []
    ended: list[Machine] = []

    def start(machine: Machine) -> str:
        started.append(machine)
        return "127.9.9.9"

    with AzureDouble(on_start=start, on_end=ended.append) as double:
        azure = Azure(Credential(**double.credential()))
        bench = Bench(azure, double)
        made = bench.made()
        assert (made.public_address, made.private_address) == ("127.9.9.9", "127.9.9.9")
        azure.stop(made)
        bench.until(made, Lifecycle.STOPPED)
        assert (len(started), len(ended)) == (1, 1)
        azure.start(made)
        bench.until(made, Lifecycle.RUNNING)
        bench.ended(made)
        azure.close()
    assert [one.key for one in started] == ["dd-one", "dd-one"]
    assert len(ended) == 2
    assert started[0] == Machine(
        id=made.id, key="dd-one", user_data=USUAL.user_data, user="drydock", public_key=PUBLIC_KEY
    )


def test_an_operation_that_azure_has_forgotten_is_no_obstacle(bench: Bench) -> None:
    underway = bench.azure.create(USUAL, bench.prepared(USUAL))
    assert isinstance(underway, Underway)
    until(lambda: bench.azure.find(USUAL).state is Lifecycle.RUNNING)
    bench.double.forget_operations()
    made = bench.azure.created(USUAL, underway.handle)
    assert isinstance(made, Instance)
    assert made.state is Lifecycle.RUNNING


def test_progress_is_told(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.ground.duration = 60
    underway = bench.azure.create(USUAL, prepared)
    assert isinstance(underway, Underway)
    again = bench.azure.created(USUAL, underway.handle)
    assert isinstance(again, Underway)
    assert again.handle == underway.handle
    assert again.percent is not None
    assert 0 <= again.percent < 100
    assert again.after == pytest.approx(30)
    found = bench.azure.find(USUAL)
    assert found is not None
    assert found.state is Lifecycle.PENDING


def test_no_token_is_sent_elsewhere(bench: Bench) -> None:
    with pytest.raises(CloudError) as caught:
        bench.azure.created(USUAL, {"operation": "https://127.0.0.2:1/operations/x"})
    assert caught.value.meaning is Meaning.INVALID


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"key": "Upper"}, "is not a valid machine name"),
        ({"key": "x" * 65}, "is not a valid machine name"),
        ({"tags": {f"t{number}": "x" for number in range(50)}}, "51 tags are too many"),
        ({"tags": {"long": "x" * 257}}, "257 characters"),
        ({"tags": {"a/b": "x"}}, "not a valid tag name"),
        ({"ssh_from": ("somewhere",)}, "not a valid network"),
    ],
)
def test_an_order_that_azure_would_not_take(bench: Bench, other: dict[str, object], said: str) -> None:
    with pytest.raises(CloudError, match=said) as caught:
        bench.prepared(dataclasses.replace(USUAL, **other))
    assert caught.value.meaning is Meaning.INVALID
    assert bench.double.objects() == {}


def test_a_machine_without_a_key_is_refused(bench: Bench) -> None:
    with pytest.raises(CloudError, match="requires a user and a public key"):
        bench.azure.create(order(public_key=""), bench.prepared(USUAL))


def test_the_identity_proves_subscription_and_group(bench: Bench) -> None:
    assert bench.azure.identity() == "00000000-1111-2222-3333-444444444444/drydock-tests"


def test_stopping_the_double_leaves_nothing(double: AzureDouble, tmp_path: Path) -> None:
    trusted = shutil.copy(double.ca_bundle, tmp_path)
    azure = Azure(Credential(**double.credential(ca_bundle=trusted)))
    azure.identity()
    double.stop()
    with pytest.raises(CloudError) as caught:
        azure.identity()
    azure.close()
    assert caught.value.meaning is Meaning.UNAVAILABLE
    assert not double._thread.is_alive()
    assert not Path(double.ca_bundle).exists()


def test_a_maximum_price_reaches_the_spot_market(bench: Bench) -> None:
    bench.made(order(market=Market.SPOT, max_price=0.0123456))
    assert bench.double.objects()["dd-one"]["properties"]["billingProfile"] == {"maxPrice": 0.01235}


def test_a_size_with_nvme_alone_is_told_so(bench: Bench) -> None:
    bench.made(order(type="Standard_D2s_v6"))
    assert bench.double.objects()["dd-one"]["properties"]["storageProfile"]["diskControllerType"] == "NVMe"
    bench.made(order(key="dd-two", token="attempt-2"))
    assert "diskControllerType" not in bench.double.objects()["dd-two"]["properties"]["storageProfile"]


def test_a_confidential_size_with_nvme_alone(bench: Bench) -> None:
    image = "Canonical:ubuntu-24_04-lts:cvm:0.20260601.2600"
    bench.made(order(type="Standard_DC2es_v6", image=image, confidential=Confidential.TDX))
    about = bench.double.objects()["dd-one"]["properties"]
    assert about["storageProfile"]["diskControllerType"] == "NVMe"
    assert about["securityProfile"]["securityType"] == "ConfidentialVM"


@pytest.mark.parametrize(
    ("size", "sku", "why"),
    [
        ("Standard_D2s_v6", "12", "supports only images of generation V2"),
        ("Standard_A1_v2", "12-gen2", "supports only images of generation V1"),
    ],
)
def test_an_image_that_does_not_suit_the_size_is_never_asked_for(bench: Bench, size: str, sku: str, why: str) -> None:
    with pytest.raises(CloudError, match=why) as caught:
        bench.prepared(order(type=size, image=f"Debian:debian-12:{sku}:0.20260601.2600"))
    assert caught.value.meaning is Meaning.NOT_OFFERED
    assert bench.double.objects() == {}


def test_a_size_by_whose_controller_the_image_has_no_disk_is_never_asked_for(bench: Bench) -> None:
    known = Features(generation="V2", controllers=frozenset({"SCSI"}))
    bench.azure._account._features[USUAL.image] = known
    with pytest.raises(CloudError, match="supports only disks by NVMe") as caught:
        bench.prepared(order(type="Standard_D2s_v6"))
    assert caught.value.meaning is Meaning.NOT_OFFERED


def test_an_empty_page_with_a_link_is_not_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Answers._page

    def empty_first(self: Any, call: Any, found: list[Any], size: int = 0) -> Any:
        if "$skiptoken" in call.query:
            return usual(self, call, found, size)
        kept = "&".join(f"{name}={value}" for name, value in call.query.items())
        link = f"{self._url}{call.path}?{kept}&$skiptoken=0".replace(" ", "%20")
        return Answer(body={"value": [], "nextLink": link})

    monkeypatch.setattr(Answers, "_page", empty_first)
    made = bench.made()
    assert [one.id for one in bench.azure.instances("", TAGS)] == [made.id]
    assert any(one.name == "Standard_D2s_v5" for one in bench.azure.types("eastus"))
    assert bench.azure.quotas("eastus")
    assert bench.azure.remains("eastus", TAGS)


def test_the_account_is_named_without_reading_a_group_that_may_be_gone(bench: Bench) -> None:
    named, before = bench.azure.identity(), len(bench.double.calls)
    assert bench.azure.account().lower() == named.lower()
    assert len(bench.double.calls) == before
