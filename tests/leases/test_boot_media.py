"""Boot media over HTTP: only for who knows the token, only for its time, and as a whole or in ranges."""

from __future__ import annotations

import datetime as dt
import logging
import subprocess
from typing import Any

import pytest

from blueprints.baremetal.kind import BareMetal
from blueprints.media import LARGEST, iso_image
from blueprints.models import Blueprint, Credential
from drydock.core import clock
from interfaces.keys import new_key_pair
from leases.models import Resource
from tests.bmc.guests import iso_files
from tests.peers import require

pytestmark = pytest.mark.django_db
TOKEN = "t" * 32


@pytest.fixture
def host() -> Resource:
    """A host whose BMC may fetch a medium now."""
    control, pair = new_key_pair("control"), new_key_pair("ramdisk")
    Credential.objects.create(name="control", secrets={"private_key": control.private})
    image = {"url": "http://10.0.0.1/a.raw", "sha256": "a" * 64, "format": "raw"}
    config = {"credential": "control", "ramdisk": {"url": "http://10.0.0.1/r.iso"}, "images": {"small": image}}
    blueprint = Blueprint.objects.create(name="rack", kind="bare_metal", config=config, resource_type="host")
    until = (clock.now() + dt.timedelta(minutes=5)).isoformat()
    return Resource.objects.create(
        blueprint=blueprint, type="host", name="alpha",
        registration={"address": "10.0.0.7", "bmc": {"driver": "redfish", "address": "10.0.1.7"}},
        facts={"ramdisk": {"boot": "b1", "host_key": pair.public, "until": until, "keys": []}},
        secrets={"ramdisk": {"host_private": pair.private, "secret": "s" * 32, "token": TOKEN}},
    )  # fmt: skip


def path(host: Resource, token: str = TOKEN, name: str = "boot.iso") -> str:
    return f"/boot/{host.pk}/{token}/{name}"


def test_a_medium_is_served_whole_or_in_ranges(client, host):
    whole = client.get(path(host))
    assert (whole.status_code, whole["Cache-Control"], whole["Accept-Ranges"]) == (200, "no-store", "bytes")
    assert b"s" * 32 in iso_files(whole.content)["boot.json"]
    part = client.get(path(host), HTTP_RANGE="bytes=32768-34815")
    assert (part.status_code, part["Content-Range"]) == (206, f"bytes 32768-34815/{len(whole.content)}")
    assert part.content[1:6] == b"CD001"
    end = client.get(path(host), HTTP_RANGE=f"bytes={len(whole.content) - 10}-")
    assert len(end.content) == 10
    assert client.get(path(host), HTTP_RANGE=f"bytes={len(whole.content)}-").status_code == 416
    assert client.head(path(host)).status_code == 200
    assert client.post(path(host)).status_code == 405


def test_who_does_not_know_the_token_finds_nothing(client, host, caplog):
    caplog.set_level(logging.INFO)
    wrong = [
        path(host, token="T" * 32), path(host, token="t" * 31), path(host, name="other.iso"),
        f"/boot/{host.pk + 1}/{TOKEN}/boot.iso", f"/boot/{'9' * 18}/{TOKEN}/boot.iso",
    ]  # fmt: skip
    found = {(answer.status_code, answer.content) for answer in map(client.get, wrong)}
    assert found == {(404, b"There is no such medium.\n")}
    assert client.get(path(host)).status_code == 200
    assert TOKEN not in caplog.text, "the token is in no log"
    assert "was refused to 127.0.0.1" in caplog.text
    assert "was served to 127.0.0.1" in caplog.text


@pytest.mark.parametrize("change", ["expired", "booted", "gone"])
def test_a_medium_ends_with_its_time_and_its_boot(client, host, change):
    if change == "expired":
        host.facts["ramdisk"]["until"] = (clock.now() - dt.timedelta(seconds=1)).isoformat()
    elif change == "booted":
        host.secrets["ramdisk"] = {}
    else:
        host.gone_at = clock.now()
    Resource.objects.filter(pk=host.pk).update(facts=host.facts, secrets=host.secrets, gone_at=host.gone_at)
    assert client.get(path(host)).status_code == 404


def test_a_resource_of_another_kind_has_no_media(client):
    blueprint = Blueprint.objects.create(name="pool", kind="fake", resource_type="fake")
    made = Resource.objects.create(blueprint=blueprint, type="fake", name="x")
    assert client.get(path(made)).status_code == 404


def test_other_programs_read_the_image_as_we_wrote_it(tmp_path):
    content = iso_image("cidata", {"user-data": b"#cloud-config\n{}", "meta-data": b"{}"})
    (tmp_path / "a.iso").write_bytes(content)
    for names in ("-J", "-R"):
        said = subprocess.run(
            [require("isoinfo"), names, "-f", "-i", tmp_path / "a.iso"], capture_output=True, text=True, check=True
        )
        assert said.stdout.split() == ["/meta-data", "/user-data"]
    said = subprocess.run(
        ["isoinfo", "-J", "-x", "/user-data", "-i", tmp_path / "a.iso"], capture_output=True, check=True
    )
    assert said.stdout == b"#cloud-config\n{}"
    with pytest.raises(ValueError, match="more than"):
        iso_image("cidata", {"user-data": bytes(LARGEST + 1)})


def test_without_an_address_for_media_a_host_is_not_booted(host, settings: Any):
    from leases.engine.core import specs

    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"boot_url": "http://10.0.0.1:8000/"})
    view = specs.resource_view(host)
    assert view.medium_url("boot.iso", TOKEN) == f"http://10.0.0.1:8000{path(host)}"
    assert BareMetal().media(view)[0].token not in repr(view)
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"boot_url": ""})
    from drydock.core.errors import NotSupported

    with pytest.raises(NotSupported, match="DRYDOCK_BOOT_URL is not set"):
        specs.resource_view(host).medium_url("boot.iso", TOKEN)
