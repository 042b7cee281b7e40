"""What a blueprint says about its networks: they are different, and the errors name what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import Json
from blueprints.baremetal.config import Config
from blueprints.baremetal.kind import BareMetal
from blueprints.networks.config import Networks
from drydock.core.errors import InvalidRequest
from interfaces.keys import new_key_pair

NAMES = {"provisioning": "deploy", "cleaning": "wash", "tenant": ["blue", "green"]}
RAMDISK = {
    "ramdisk": {"url": "http://10.0.0.1/ramdisk.iso"},
    "images": {"small": {"url": "http://10.0.0.1/a.raw", "sha256": "a" * 64, "format": "raw"}},
}


def networks(**given: Any) -> Json:
    return {"driver": "fake", **NAMES, **given}


def test_one_network_for_tenants_may_be_given_as_a_word() -> None:
    made = Networks.model_validate(networks(tenant="blue"))
    assert made.tenant == ("blue",)
    assert made.names == ("deploy", "wash", "blue")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (networks(driver="vlans"), "There is no network driver 'vlans'. Installed are:"),
        (networks(cleaning="deploy"), "deploy is named twice"),
        (networks(tenant=["blue", "wash"]), "wash is named twice"),
        (networks(tenant=["blue", "Deploy"]), "Deploy is named twice"),
        (networks(tenant=["blue", "blue"]), "blue is named twice"),
        (networks(tenant=[]), "tenant requires a network"),
        (networks(tenant=["a b"]), "String should match pattern"),
        (networks(settings={"ids": {"deploy": 1, "wash": 2, "blue": 3}}), "green is not among the ids"),
        (networks(settings={"ids": {"deploy": 1, "wash": 2, "blue": 3, "green": 2}}), "green has the id 2 of another"),
        (networks(settings={"vlan": 1}), "settings.vlan"),
        (networks(driver="command"), "settings.program"),
        (
            networks(driver="command", settings={
                "program": "a", "ids": {"deploy": "010", "wash": "2", "blue": "10", "green": "4"},
            }),
            "blue has the id 10 of another",
        ),
        (networks(timeout=20), "less than or equal to 12"),
        ({"driver": "none", "tenant": "blue"}, "the driver none switches no networks"),
    ],
)  # fmt: skip
def test_networks_that_overlap_or_cannot_work_are_refused(given: Json, said: str) -> None:
    if given.get("driver") == "command" and "settings" not in given:
        given = {**given, "settings": {}}
    with pytest.raises(ValidationError) as caught:
        Networks.model_validate(given)
    assert said in str(caught.value)


def test_the_ids_of_other_networks_than_those_of_the_blueprint_may_be_any() -> None:
    ids = {"deploy": 1, "wash": 2, "blue": 3, "green": 4, "storage": 3}
    assert Networks.model_validate(networks(settings={"ids": ids})).names == ("deploy", "wash", "blue", "green")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**RAMDISK, "network": {"driver": "fake", "tenant": "blue"}}, "network requires provisioning"),
        ({**RAMDISK, "network": {**networks(), "cleaning": ""}}, "network requires cleaning"),
        ({"network": networks()}, "network.provisioning requires a ramdisk"),
    ],
)
def test_a_ramdisk_needs_its_networks_and_hosts_without_one_have_none_of_them(given: Json, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"credential": "c", **given})


def test_a_host_that_is_in_the_network_of_its_lease_has_one_lease_at_a_time() -> None:
    made = Config.model_validate({"credential": "c", "network": {"driver": "fake", "tenant": "blue"}})
    assert (made.switches_networks, made.one_at_a_time) == (True, True)
    plain = Config.model_validate({"credential": "c", "network": {"driver": "none"}})
    assert (plain.switches_networks, plain.one_at_a_time) == (False, False)


HOST = {
    "address": "10.0.0.7", "host_keys": [new_key_pair("host").public],
    "bmc": {"driver": "command", "program": "strip", "address": "7"},
}  # fmt: skip
PORT = {"switch": "leaf-1", "port": "Ethernet1/12"}


def test_the_ports_of_a_host_are_identities_and_its_networks_an_attribute() -> None:
    config = Config.model_validate({"credential": "c", "network": {"driver": "fake", "tenant": ["blue", "green"]}})
    given = BareMetal.Registration.model_validate({**HOST, "ports": [PORT, {**PORT, "port": "Ethernet1/13"}]})
    draft = BareMetal().register(config, given)
    named = [str(one) for one in draft.identities if one.namespace == "switch_port"]
    assert named == ["switch_port leaf-1/ethernet1/12", "switch_port leaf-1/ethernet1/13"]
    assert draft.attributes["networks"] == ["blue", "green"]
    assert draft.capacity.slots == 1
    plain = BareMetal().register(Config.model_validate({"credential": "c"}), given)
    assert "networks" not in plain.attributes


@pytest.mark.parametrize(("more", "field"), [({}, "ports"), ({"ports": [PORT], "slots": 2}, "slots")])
def test_a_registration_without_ports_or_with_several_slots_is_refused(more: Json, field: str) -> None:
    config = Config.model_validate({"credential": "c", "network": {"driver": "fake", "tenant": "blue"}})
    with pytest.raises(InvalidRequest) as caught:
        BareMetal().register(config, BareMetal.Registration.model_validate({**HOST, **more}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "ports",
    [
        [PORT, PORT],
        [PORT, {"switch": "LEAF-1", "port": "ethernet1/12"}],
        [{**PORT, "mac": "02:00:00:00:00:0a"}, {"switch": "leaf-2", "port": "1", "mac": "02:00:00:00:00:0A"}],
    ],
)
def test_a_port_is_named_once(ports: Any) -> None:
    with pytest.raises(ValidationError, match="is there twice"):
        BareMetal.Registration.model_validate({**HOST, "ports": ports})
