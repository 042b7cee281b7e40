"""Hosts in a real browser: registered one by one and as CSV, confirmed by their keys, corrected, removed."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from blueprints.models import Credential
from interfaces.keys import PublicKey
from leases.messaging.inline import settle
from leases.models import Event, Resource
from tests.admin.conftest import page, rows_of
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.server(f"127.9.3.{WORKER + 1}") as running:
        yield running


@pytest.fixture
def lab(server, blueprint):
    """A blueprint of registered hosts that the server's control key opens."""
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    config = {"credential": "control", "accounts": "shared", "trusted": True, "min_free_mib": 1, "connect_timeout": 2}
    return blueprint("lab", kind="ssh_host", resource_type="host", config=config)


def fingerprint(server: Server) -> str:
    return PublicKey.parse(server.host.public).fingerprint


def test_a_host_is_registered_by_its_confirmed_key_then_corrected_and_removed(look, site, server, lab):
    shown = look(site)
    shown.goto(rows_of(Resource))
    shown.get_by_role("link", name="Register hosts").click()
    for name, value in (("address", server.address), ("port", str(server.port)), ("user", getpass.getuser())):
        shown.locator(f"[name='registration.{name}']").fill(value)
    shown.locator("[name='registration.name']").fill(EVIL)
    shown.get_by_role("button", name="Continue", exact=True).click()
    expect(shown.locator(".dd-fingerprint")).to_have_text(fingerprint(server))
    expect(shown.locator(".dd-hosts")).to_contain_text("presented by the host")
    expect(shown.locator(".dd-hosts")).to_contain_text(EVIL)
    assert not Resource.objects.exists(), "nothing is stored before it is confirmed"
    shown.get_by_role("button", name="Register selected").click()
    expect(shown.locator(".messagelist")).to_contain_text("No host was selected")
    assert not Resource.objects.exists()

    for name, value in (("address", server.address), ("port", str(server.port)), ("user", getpass.getuser())):
        shown.locator(f"[name='registration.{name}']").fill(value)
    shown.locator("[name='registration.name']").fill(EVIL)
    shown.get_by_role("button", name="Continue", exact=True).click()
    shown.get_by_label(EVIL).check()
    shown.get_by_role("button", name="Register selected").click()
    expect(shown.locator(".messagelist")).to_contain_text("registered. A check was started")
    host = Resource.objects.get()
    assert shown.url.endswith(page(host))
    assert host.facts["host_keys"] == [PublicKey.parse(server.host.public).line]
    assert Event.objects.filter(resource=host, actor="chief").exists()
    settle()
    expect(shown.locator(".dd-head .dd-badge").first).to_contain_text("active")

    shown.get_by_role("link", name="Correct", exact=True).click()
    shown.locator("[name='registration.port']").fill("1")
    shown.get_by_role("button", name="Continue", exact=True).click()
    expect(shown.locator(".dd-hosts")).to_contain_text("as entered")
    shown.get_by_label(EVIL).check()
    shown.get_by_role("button", name="Change selected").click()
    expect(shown.locator(".messagelist")).to_contain_text("changed. A check was started")
    settle()
    expect(shown.locator(".dd-head")).to_contain_text("suspect")
    expect(shown.locator(".dd-head")).to_contain_text("connection refused (")
    host.refresh_from_db()
    assert host.registration["port"] == 1

    shown.get_by_role("link", name="Correct", exact=True).click()
    shown.locator("[name='registration.port']").fill(str(server.port))
    shown.locator("[name='registration.host_keys']").fill("")
    shown.get_by_role("button", name="Continue", exact=True).click()
    expect(shown.locator(".dd-fingerprint")).to_have_text(fingerprint(server))
    shown.get_by_label(EVIL).check()
    shown.get_by_role("button", name="Change selected").click()
    Resource.objects.update(check_at="2020-01-01T00:00Z")
    settle()
    host.refresh_from_db()
    assert (host.suspect_since, host.facts["port"]) == (None, server.port)

    shown.goto(page(host))
    shown.locator(".object-tools").get_by_role("link", name="Remove").click()
    shown.get_by_role("button", name="Remove", exact=True).click()
    settle()
    host.refresh_from_db()
    assert host.state == "destroyed"


def test_hosts_are_registered_as_csv_each_with_its_key(look, site, server, lab):
    shown = look(site)
    shown.goto(f"{reverse('admin:leases_resource_register')}?blueprint=lab")
    text = (
        "name,address,port,user,traits,attributes.region\n"
        f"alpha,{server.address},{server.port},{getpass.getuser()},fast;quiet,lab\n"
        f"{EVIL},{server.address},1,root,,\n"
    )
    shown.get_by_label("CSV file").set_input_files(
        {"name": "hosts.csv", "mimeType": "text/csv", "buffer": text.encode("utf-8-sig")}
    )
    shown.get_by_role("button", name="Continue with CSV").click()
    rows = shown.locator(".dd-hosts tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator(".dd-fingerprint")).to_have_text(fingerprint(server))
    expect(rows.nth(1)).to_contain_text(EVIL)
    expect(rows.nth(1)).to_contain_text("presented no host key")
    expect(rows.nth(1).locator("input")).to_have_count(0)
    shown.get_by_label("alpha").check()
    shown.get_by_role("button", name="Register selected").click()
    expect(shown.locator(".messagelist")).to_contain_text("lpha: registered")
    settle()
    host = Resource.objects.get()
    assert (host.name, host.state, host.traits) == ("alpha", "active", ["fast", "quiet"])
    assert host.attributes["region"] == "lab"


def test_the_pages_fit_a_phone(look, site, server, lab):
    shown = look(site, width=360, height=740)
    shown.goto(f"{reverse('admin:leases_resource_register')}?blueprint=lab")
    shown.locator("[name='registration.address']").fill(server.address)
    shown.locator("[name='registration.port']").fill(str(server.port))
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert shown.evaluate(wide) <= 0
    shown.get_by_role("button", name="Continue", exact=True).click()
    expect(shown.locator(".dd-fingerprint").first).to_be_visible()
    assert shown.evaluate(wide) <= 0
