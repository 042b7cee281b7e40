"""The pages of hardware: hosts with their devices, why one is not ready, who holds one; bounded, escaped, narrow."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from playwright.sync_api import expect

from drydock.core import clock
from drydock_agent import Device, Readiness
from leases.admin import hardware
from leases.models import Agent, ReportedHardware, Resource, Sync
from tests.admin.conftest import page
from tests.console.hosts import UNBOUND, gpu, hosts

ALL = reverse("admin:hardware")
PERMISSIONS = ("view_reportedhardware", "view_resource", "view_lease", "view_agent", "view_blueprint")
HOST = '<details class="module dd-host"'
HOSTILE = "<script>alert(1)</script>\n\x1b[31m" + "y" * 10_000


def of(row):
    return reverse("admin:hardware_of_host", args=(row.pk,))


def text(response):
    assert response.status_code == 200, response.status_code
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


@pytest.mark.parametrize(
    ("number", "each"), [(0, 0), (1, 3), (1_250, 8), pytest.param(1, 10_000, marks=pytest.mark.slow)]
)
def test_the_pages_take_at_most_twelve_statements(site, staff, number, each):
    hosts(number, each)
    addresses = [ALL, f"{ALL}?q=host-1&show=problems", f"{ALL}?p=9"]
    addresses += [of(one) for one in ReportedHardware.objects.all()[:1]]
    addresses += [page(one) for kind in ("host", "accelerator") for one in Resource.objects.filter(type=kind)[:1]]
    # Staff with permissions need more statements than a superuser.
    for client in (staff(*PERMISSIONS),) if each > 100 else (site, staff(*PERMISSIONS)):
        for address in addresses:
            client.get(address)  # The first request of a process also reads the types of content.
            with CaptureQueriesContext(connection) as sent:
                shown = client.get(address)
            assert shown.status_code == 200
            assert len(sent) <= 12, (address, [one["sql"] for one in sent])
            assert len(shown.content) < 500_000


def test_the_tree_shows_what_is_ready_what_is_not_and_why(site):
    vf = Device(
        id="0000:01:00.4", part_of="0000:01:00.0", kind="gpu", device_class="vf", role="part", readiness=Readiness.READY
    )
    display = gpu(0, id="0000:90:00.0", role="display_only", device_class="", readiness=None)
    hosts(2, 4, vf, display, Device(id="0000:00:01.0", kind="bridge"))
    shown = text(site.get(ALL))
    assert "4 free 4 not ready" in shown
    assert (
        shown.index("host-0") < shown.index("0000:01:00.0") < shown.index("0000:01:00.4") < shown.index("0000:01:01.0")
    )
    assert f"setup required NUMA 0, IOMMU 2, x16, 16 GT/s {UNBOUND}" in shown
    assert "✕ failed nvidia NUMA 1, IOMMU 3" in shown
    assert "It fell off the bus." in shown
    assert "not leased" in shown
    assert "only drives a display" in shown
    assert "It is ready, but the blueprint does not lease it." in shown
    assert "0000:00:01.0" not in shown
    row = ReportedHardware.objects.first()
    one = text(site.get(of(row)))
    assert "EPYC 7763" in one
    assert "nvidia-smi It did not end in 20 s." in one
    assert "Show 1 bridges" in one
    assert "0000:00:01.0" in text(site.get(of(row) + "?all=1"))
    assert f"drydock hardware show {row.sync.place} --blueprint cards" in one


def test_used_and_drained_devices_are_counted_apart_and_say_why(site, ask):
    hosts(1, 8)
    assert "4 free 4 not ready" in text(site.get(ALL))
    lease = ask("accelerator")
    assert "1 used 3 free 4 not ready" in text(site.get(ALL))
    assert f"#{lease.pk}" in text(site.get(ALL))
    first = Resource.objects.filter(type="accelerator", used_slots=0).order_by("pk").first()
    Resource.objects.filter(pk=first.pk).update(drained=True, note="A fan is loud.")
    assert "1 used 2 free 1 closed 4 not ready" in text(site.get(ALL))
    shown = text(site.get(ALL))
    assert "drained" in shown
    assert "A fan is loud." in shown


def test_hosts_and_devices_come_in_pages_and_can_be_searched(site):
    hosts(30, 4)
    shown = site.get(ALL)
    assert shown.content.decode().count(HOST) == hardware.HOSTS
    assert "1 to 25" in text(shown)
    last = text(site.get(f"{ALL}?p=2"))
    assert "26 to 30" in last
    assert "host-29" in last
    assert "host-29" in text(site.get(f"{ALL}?q=host-29"))
    assert "No host matches." in text(site.get(f"{ALL}?q=nowhere"))
    ReportedHardware.objects.exclude(sync=ReportedHardware.objects.first()).update(unready=0)
    assert site.get(f"{ALL}?show=problems").content.decode().count(HOST) == 1
    assert site.get(f"{ALL}?p=zero&q=%00%27").status_code == 200


def test_a_large_host_is_cut_and_paged(site):
    hosts(1, 250)
    assert "210 more devices are on the page of the host." in text(site.get(ALL))
    row = ReportedHardware.objects.get()
    assert "1 to 100" in text(site.get(of(row)))
    assert "201 to 250" in text(site.get(of(row) + "?p=3"))


def test_reports_that_are_too_large_together_are_not_unpacked(site, monkeypatch):
    hosts(3, 4)
    monkeypatch.setattr(hardware, "READ_AT_ONCE", ReportedHardware.objects.first().size)
    shown = text(site.get(ALL))
    assert shown.count(UNBOUND) == 1
    assert shown.count("The devices are on the page of the host.") == 2


def test_a_silent_agent_is_shown_above_and_at_its_host(site):
    hosts(2, 4)
    sync = Sync.objects.last()
    Agent.objects.create(
        blueprint=sync.blueprint, place=sync.place, name="host-1", interval=60, joined_at=clock.now(),
        reported_at=clock.now(), silent_since=clock.now(),
    )  # fmt: skip
    shown = text(site.get(ALL))
    assert "Agents that need attention" in shown
    assert shown.count("not every 60 s.") == 2
    assert "host-0" not in text(site.get(f"{ALL}?show=problems&q=host-1"))


def test_texts_of_hosts_are_escaped_and_cut(site):
    hosts(1, 0, gpu(1, id="0000:01:00.0/" + HOSTILE, name=HOSTILE, driver=HOSTILE, reason=HOSTILE))
    Resource.objects.filter(type="host").update(name=HOSTILE[:250])
    Sync.objects.update(message=HOSTILE)
    for address in (ALL, of(ReportedHardware.objects.get())):
        content = site.get(address).content.decode()
        assert "<script>alert" not in content
        assert "&lt;script&gt;alert" in content
        assert len(content) < 60_000


def test_who_may_not_see_all_that_is_shown_sees_nothing(staff):
    hosts(1, 4)
    row = ReportedHardware.objects.get()
    for n, missing in enumerate(PERMISSIONS):
        client = staff(*(one for one in PERMISSIONS if one != missing), name=f"stan-{n}")
        assert client.get(ALL).status_code == 403
        assert client.get(of(row)).status_code == 403
    assert staff(*PERMISSIONS, name="may").get(of(row)).status_code == 200
    assert staff(*PERMISSIONS, name="else").get(reverse("admin:hardware_of_host", args=(987654,))).status_code == 404


def test_pages_of_a_host_and_of_its_devices_lead_to_the_hardware(site):
    hosts(2, 4)
    row = ReportedHardware.objects.order_by("pk").first()
    for resource in (Resource.objects.get(pk=row.sync.place), row.sync.findings.first().resource):
        assert f'href="{ALL}?q={row.sync.place}"' in site.get(page(resource)).content.decode()
    shown = site.get(f"{ALL}?q={row.sync.place}").content.decode()
    assert f'href="{of(row)}"' in shown
    assert shown.count(HOST) == 1


def test_the_page_works_on_a_narrow_screen_and_in_the_dark(look, site):
    hosts(2, 4)
    narrow = look(site, width=360, dark=True)
    narrow.goto(ALL)
    expect(narrow.locator(".dd-host").first).to_contain_text(UNBOUND)
    assert narrow.evaluate("document.documentElement.scrollWidth <= 360")
    narrow.locator(".dd-host summary").first.click()
    expect(narrow.locator(".dd-host").first.locator(".dd-tree")).not_to_be_visible()
    narrow.get_by_label("only with problems").check()
    narrow.get_by_role("button", name="Show").click()
    narrow.get_by_role("link", name="All about this host").first.click()
    expect(narrow.locator("#content")).to_contain_text("EPYC 7763")
