"""Images as values: which object of DPF they are, what refers to it, and what older servers cannot express."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import NeededLease
from blueprints.dpf import images, manifests, permissions
from blueprints.dpf.images import Image
from blueprints.dpu.dpf import actions, checking, deploying
from blueprints.dpu.dpf.config import Config
from blueprints.dpu.dpf_image import config as schema
from blueprints.kube.dialect import bundled
from tests.dpf.test_deployments import config as deployed

BFB, ISO, FIRMWARE = "https://x.example/a.bfb", "https://x.example/os.iso", "https://x.example/fw.fwpkg"
CARD = {"card_labels": {"card": "x"}, "node_labels": {"node": "x"}}


def listed(**image: Any) -> schema.Config:
    return schema.Config(credential="dpf", namespace="dpus", images=(image,))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://x.example/os.img", "Must end in .bfb or, for BlueField 4, in .iso"),
        ("ftp://x.example/os.iso", "Must begin with http:// or https://"),
        ("https://ada:secret@x.example/os.iso", "without a user name"),
        ("https:///os.iso", "Must begin with http:// or https://"),
    ],
)
def test_addresses_that_dpf_cannot_install(url, said):
    with pytest.raises(ValidationError, match=said):
        listed(url=url)
    with pytest.raises(ValidationError, match=said):
        Config(credential="dpf", image=url, flavor="plain")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": BFB, "firmware": FIRMWARE}, "firmware: a BFB has its firmware in it"),
        ({"url": ISO, "platform_firmware": FIRMWARE, "nic_firmware": FIRMWARE}, "not both"),
        ({"url": ISO, "firmware": "file:///etc/passwd"}, "Must begin with http:// or https://"),
    ],
)
def test_firmware_that_does_not_belong_to_an_image(given, said):
    with pytest.raises(ValidationError, match=said):
        listed(**given)


def test_generations_of_cards_follow_from_the_file_unless_they_are_given():
    made = [schema.draft(listed(**one).images[0]).attributes["models"] for one in (
        {"url": BFB}, {"url": ISO}, {"url": ISO, "models": ("BlueField5",)},
    )]  # fmt: skip
    assert made == [["BlueField2", "BlueField3"], ["BlueField4"], ["BlueField5"]]


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_a_bfb_is_valid_for_both_versions(version):
    dialect = bundled()[f"dpf-{version}"]
    assert schema.inexpressible(dialect, listed(url=BFB), "here") == []
    assert checking.uninstallable(dialect, {"image": BFB}, "here") == []
    made = manifests.dpu_set(dialect, "s", "dpus", CARD, image=Image(images.BFB, "a"), flavor="f", labels={})
    assert made["spec"]["dpuTemplate"]["spec"]["bfb"] == {"name": "a"}


def test_dpf_26_4_has_the_image_of_an_iso_and_no_field_that_refers_to_it():
    dialect = bundled()["dpf-26.4"]
    made = images.manifest(dialect, "a", "dpus", {"url": ISO, "firmware": FIRMWARE})
    assert (made["kind"], made["spec"]) == ("BlueFieldSoftware", {"osIso": ISO, "pldmFwBundle": FIRMWARE})
    assert schema.inexpressible(dialect, listed(url=ISO, firmware=FIRMWARE), "here") == []
    (newer,) = schema.inexpressible(dialect, listed(url=ISO, nic_firmware=FIRMWARE), "here")
    assert "does not accept the field spec.nicFw of a BlueFieldSoftware" in newer.message
    found = checking.uninstallable(dialect, {"image": ISO, "park_image": BFB}, "here")
    said = "The API server at here does not accept the field spec.dpuTemplate.spec.blueFieldSoftware of a DPUSet."
    assert [(one.field, one.message) for one in found] == [("image", said)]


def test_a_deployment_with_an_iso_names_the_fields_that_the_server_lacks():
    given = deployed().model_dump(mode="json", include={"charts", "credential", "deployment"})
    made = Config(**{**given, "deployment": {**given["deployment"], "image": ISO}})
    found = {one.message for one in deploying.inexpressible(bundled()["dpf-26.4"], made, "here")}
    assert found == {
        "The API server at here does not accept the field spec.dpus.blueFieldSoftware of a DPUDeployment.",
        "The API server at here requires the field spec.dpus.bfb of a DPUDeployment.",
    }


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        ({"bfb": "a"}, Image(images.BFB, "a")),
        ({"bfb": {"name": "a"}}, Image(images.BFB, "a")),
        ({"bfb": "", "blueFieldSoftware": "b"}, Image(images.SOFTWARE, "b")),
        ({"blueFieldSoftware": {"name": "b"}}, Image(images.SOFTWARE, "b")),
        ({"bfb": {}, "dpuFlavor": "f"}, None),
    ],
)
def test_the_image_of_a_dpu_is_read_from_either_field(spec, image):
    assert Image.named_in(spec) == image


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"image": BFB}, {"bfbs"}),
        ({"image": ISO}, {"bluefieldsoftwares"}),
        ({"image": ISO, "park_image": BFB}, {"bfbs", "bluefieldsoftwares"}),
        ({"deployment": {"image": ISO}}, {"bluefieldsoftwares"}),
        ({"image": f"{ISO}?a=b.bfb"}, {"bluefieldsoftwares"}),
        ({"image": "http://[bad.iso"}, {"bfbs"}),
        ({}, {"bfbs"}),
    ],
)
def test_a_role_has_the_images_of_the_config_only(config, kinds):
    dialect = bundled()["dpf-26.4"]
    found = {one.type.plural for one in permissions.permissions("dpf", dialect, config=config).namespaced}
    assert found & {"bfbs", "bluefieldsoftwares"} == kinds
    given = {"images": [{"url": url} for url in (BFB, ISO) if url in str(config)] or [{"url": BFB}]}
    of_images = permissions.permissions("dpf_image", dialect, config=given)
    assert {one.type.plural for one in of_images.namespaced} == kinds


@pytest.mark.parametrize(
    ("models", "card", "wanted"),
    [
        (["BlueField4"], {}, {"model": "BlueField4"}),
        (["BlueField4"], {"model": "BlueField5"}, {"model": "BlueField5"}),
        (["BlueField2", "BlueField3"], {"via": "dpf"}, {"via": "dpf"}),
        (None, {}, {}),
    ],
)
def test_a_card_is_of_the_only_generation_that_the_image_is_made_for(models, card, wanted):
    image: Any = SimpleNamespace(resource=SimpleNamespace(attributes={"models": models} if models else {}))
    lease = NeededLease(name="card", type="dpu_card", requirements=card)
    assert actions.card_for(image, lease).requirements == wanted
