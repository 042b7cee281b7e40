"""DPUs of BlueField 4 are installed from a BlueFieldSoftware, on a real API server with what DPF 26.10 has for it."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.models import Blueprint
from drydock_client.values import BlueprintChange
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Lease, Resource
from leases.operations import blueprints, resources
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpus.api import BFB, DPU, SET, SOFTWARE
from tests.dpus.conftest import newest as newest
from tests.dpus.images import Image
from tests.dpus.user import URL, User
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ISO = "http://127.0.0.1:1/bf4-os-4.0.iso"
FIRMWARE = "http://127.0.0.1:1/bf4-4.0.fwpkg"


@pytest.fixture
def dpf(newest: User) -> User:
    """A user of DPF 26.10, where a BFB and an ISO are served."""
    newest.double.images.update({one: Image(models=("BlueField4",)) for one in (URL, ISO)})
    return newest


def installed(lab: Any, **config: Any) -> Lab:
    """Return a lab with a host whose card is a BlueField 4, and with images for it."""
    made: Lab = lab(**config)
    listed = [
        {"url": URL, "doca": "3.9.0", "models": ["BlueField4"]}, {"url": ISO, "doca": "4.0.0", "firmware": FIRMWARE}
    ]  # fmt: skip
    Blueprint.objects.filter(name="images").update(config={**made.server, "images": listed})
    made.host("h1", "MT2600X00001")
    made.double.world.cards[0].model = "BlueField4"
    made.discover()
    return made


def test_a_dpu_is_installed_from_an_iso_with_its_firmware_and_leaves_nothing(lab, ask):
    site = installed(lab, image=ISO)
    lease = site.until(ask("dpu"), state="active")
    (card,) = site.double.world.cards
    assert (card.imaged, card.running) == ([ISO], ISO)
    (image,) = site.user.all(SOFTWARE)
    assert image["spec"] == {"osIso": ISO, "pldmFwBundle": FIRMWARE}
    (dpu,) = site.user.all(DPU)
    assert (dpu["spec"]["blueFieldSoftware"], dpu["spec"].get("bfb")) == (image["metadata"]["name"], None)
    assert site.user.all(BFB) == []

    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    row = Resource.objects.get(pk=lease.resource_id)
    assert retirement.retire_idle(row.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(row, state="destroyed")
    kept = Resource.objects.get(type="dpu_image")
    assert retirement.retire_idle(kept.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(kept, state="destroyed")
    assert [*site.user.left(), *site.user.all(SET), *site.user.all(SOFTWARE)] == []


def test_a_dpu_with_a_bfb_is_brought_to_an_iso(lab, ask):
    site = installed(lab, image=URL)
    lease = site.until(ask("dpu"), state="active")
    config = {**Blueprint.objects.get(name="dpus").config, "image": ISO}
    blueprints.change(site.root, "dpus", BlueprintChange(config=config))
    row = Resource.objects.get(pk=lease.resource_id)
    resources.update(site.root, row.pk, reason="a security fix")
    site.until(row, turns=200, generation=Blueprint.objects.get(name="dpus").generation)
    (card,) = site.double.world.cards
    assert (card.imaged, card.running) == ([URL, ISO], ISO)
    (made,) = site.user.all(SET)
    template = made["spec"]["dpuTemplate"]["spec"]
    (image,) = site.user.all(SOFTWARE)
    assert ("bfb" in template, template["blueFieldSoftware"]) == (False, {"name": image["metadata"]["name"]})


def test_an_iso_that_cannot_be_downloaded_is_said_and_no_card_is_touched(lab, ask):
    site = installed(lab, image=ISO)
    del site.double.images[ISO]
    ask("dpu")
    for _ in range(20):
        site.turn()
    said = Lease.objects.get(need="image").message
    assert f"DPF cannot download {ISO}" in said
    assert "unexpected status code 404" in said
    assert (site.user.all(DPU), site.user.all(SOFTWARE)) == ([], [])
