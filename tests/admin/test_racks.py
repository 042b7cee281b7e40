"""The page of racks, and erasure records in the console."""

from __future__ import annotations

import pytest
from django.urls import reverse

from blueprints.fake.kind import FakeActivated
from leases.admin.hosts import racks
from leases.messaging.inline import settle
from leases.models import ErasureRecord, Resource, Run
from leases.operations import leases, resources
from leases.operations.callers import caller
from leases.reports import status
from tests.admin.conftest import page, rows_of
from tests.leases import kinds

LATER = 3600


class Rack(FakeActivated):
    """Hosts that are cleaned apart from their leases."""

    name = "rack"
    resource_type = "host"


@pytest.fixture(autouse=True)
def _kind():
    with kinds.installed(Rack()):
        yield


@pytest.fixture
def hosts(blueprint, chief):
    """Registered hosts by name, with their positions in racks."""

    def make(*names, config=None, pool="metal"):
        blueprint(
            pool, kind="rack", resource_type="host", max_resources=len(names),
            config={"clean_apart": True, "clean_polls": 4, "poll_seconds": LATER, "disks": 2, **(config or {})},
        )  # fmt: skip
        who = caller(chief)
        made = [resources.register(who, pool, {"name": name}).id for name in names]
        settle()
        return [Resource.objects.get(pk=pk) for pk in made]

    return make


def place(row, rack, position=""):
    Resource.objects.filter(pk=row.pk).update(attributes={"rack": rack, "position": position})


def shown(site, **query):
    """The titles of the racks that the page shows, with the hosts in each and their status."""
    found = site.get(reverse("admin:racks"), query)
    assert found.status_code == 200
    _, *panels = found.context["panels"]
    return {panel.title: [(str(row[0]), str(row[1]), str(row[2])) for row in panel.rows] for panel in panels}


def test_hosts_are_shown_in_their_racks_from_the_top_down(site, hosts):
    a, b, c, d = hosts("a", "b", "c", "d")
    place(a, "R1", "2")
    place(b, "R1", "12")
    place(c, "R2")
    found = shown(site)
    assert list(found) == ["(metal)", "R1", "R2"]
    assert [host.partition(">")[2].partition("<")[0] for _, host, _ in found["R1"]] == [f"b (#{b.pk})", f"a (#{a.pk})"]
    assert "available" in found["R2"][0][2]
    assert list(shown(site, q="R2")) == ["R2"]
    assert list(shown(site, q="metal")) == ["(metal)", "R1", "R2"]
    assert list(shown(site, q="d")) == ["(metal)"]
    assert shown(site, status="quarantined") == {}
    assert shown(site, q="nowhere") == {}
    assert d.name == "d"


def test_the_status_says_where_a_host_is_in_its_life(site, hosts, ask, owner, chief, until):
    who = caller(chief)
    (host,) = hosts("h", config={"faults": [{"does": "slow", "at": "build.boot", "polls": 1, "after": LATER}]})

    def now():
        return resources.get(who, host.pk).status

    assert now() == "enrolling"
    assert "enrolling" in shown(site)["(metal)"][0][2]
    Run.objects.update(due_at="2020-01-01T00:00Z")
    settle()
    assert now() == "available"
    resources.drain(who, host.pk)
    assert now() == "drained"
    resources.drain(who, host.pk, drained=False)
    lease = until(ask("host"), state="active")
    assert now() == "in use"
    leases.release(caller(owner), lease.pk)
    settle()
    assert now() == "cleaning"
    row = shown(site)["(metal)"][0]
    assert "cleaning" in row[2]
    assert "0 %" in site.get(reverse("admin:racks")).content.decode()
    Run.objects.all().delete()
    assert now() == "cleaning owed"
    resources.quarantine(who, host.pk, message="smells of smoke")
    assert now() == "quarantined"
    page_ = site.get(reverse("admin:racks")).content.decode()
    assert "smells of smoke" in page_
    assert 'status=quarantined">1 ' in page_


@pytest.mark.parametrize(
    ("columns", "run", "held", "rescued", "expected"),
    [
        ({}, {"phase": "act", "wanted": {"act": "rescue"}}, ("active",), False, "rescue"),
        ({}, {"phase": "act", "wanted": {"act": "erase"}}, (), False, "cleaning"),
        ({}, {"phase": "act", "wanted": {"act": "inspect"}}, (), False, "available"),
        ({}, None, ("active",), True, "rescue"),
        ({}, None, ("acquired",), False, "deploying"),
        ({}, None, ("released",), False, "cleaning"),
        ({"suspect_since": "2020-01-01T00:00Z"}, None, (), False, "unreachable"),
        ({"in_maintenance": True}, None, (), False, "maintenance"),
        ({"state": "released"}, None, (), False, "removing"),
        ({"state": "broken"}, None, (), False, "broken"),
        ({"state": "destroyed", "gone_at": "2020-01-01T00:00Z"}, None, (), False, "removed"),
    ],
)
def test_each_situation_has_a_word(columns, run, held, rescued, expected):
    row = Resource(**{"state": "active", **columns})
    found = status.status(row, None if run is None else Run(**run), None, held, rescued=rescued)
    assert found == expected
    assert found in status.STATUSES


def test_the_page_needs_few_statements_and_its_permissions(
    staff, hosts, ask, owner, until, django_assert_max_num_queries
):
    made = hosts(*(f"h{number}" for number in range(6)))
    for number, row in enumerate(made):
        place(row, f"R{number % 2}", str(number))
    held = [until(ask("host"), state="active") for _ in range(3)]
    for lease in held[:2]:
        leases.release(caller(owner), lease.pk)
    settle()
    client = staff("view_resource", "view_lease", "view_blueprint")
    with django_assert_max_num_queries(12):
        assert client.get(reverse("admin:racks")).status_code == 200
    assert staff("view_resource", name="tess").get(reverse("admin:racks")).status_code == 403


def test_many_hosts_are_shown_in_part_and_the_page_says_so(site, hosts, monkeypatch):
    monkeypatch.setattr(racks, "MOST", 2)
    hosts("a", "b", "c")
    assert [len(rows) for rows in shown(site).values()] == [2]
    assert "The first 2 hosts." in site.get(reverse("admin:racks")).content.decode()


def test_names_and_racks_are_escaped(site, hosts):
    (host,) = hosts("<i>x</i>")
    place(host, "<b>R1</b>", "<u>")
    found = site.get(reverse("admin:racks")).content.decode()
    assert "<b>R1</b>" not in found
    assert "<i>x</i>" not in found
    assert "&lt;b&gt;R1&lt;/b&gt;" in found


def test_erasures_are_listed_and_shown_on_the_pages_of_host_and_lease(site, hosts, ask, owner, until):
    hosts("h", config={"clean_polls": 0})
    lease = until(ask("host"), state="active")
    assert "Erasures" not in site.get(page(lease)).content.decode()
    leases.release(caller(owner), lease.pk)
    until(lease, state="destroyed")
    settle()
    one, two = ErasureRecord.objects.order_by("disk")
    for at in (page(lease), page(lease.resource), rows_of(ErasureRecord)):
        found = site.get(at).content.decode()
        assert one.serial in found, at
        assert two.serial in found, at
    listed = site.get(rows_of(ErasureRecord), {"q": one.serial}).content.decode()
    assert one.serial in listed
    assert two.serial not in listed
    assert two.serial in site.get(rows_of(ErasureRecord), {"q": str(lease.pk)}).content.decode()
    record = site.get(page(one)).content.decode()
    assert "overwrite" in record
    assert "1,099.5 GB" in record
    assert site.post(page(one), {"verified": ""}).status_code == 403
