"""Erasure records over HTTP: filters, pages, and what each user sees."""

from __future__ import annotations

from django.contrib.auth.models import User

from leases.operations import leases
from leases.operations.callers import caller


def test_records_are_listed_in_pages_to_operators_and_to_the_owner(blueprint, ask, until, owner, chief, api):
    blueprint(kind="fake_activated", config={"disks": 3})
    lease = until(ask("fake_activated"), state="active")
    leases.release(caller(owner), lease.pk)
    until(lease, state="destroyed")

    ada, operator, bob = api(owner, "read"), api(chief, "operate"), api(User.objects.create_user("bob"), "read")
    found = ada("GET", "erasures?limit=2")
    assert [one["disk"] for one in found["results"]] == ["disk0", "disk1"]
    rest = ada("GET", f"erasures?limit=2&cursor={found['next']}")
    assert ([one["disk"] for one in rest["results"]], rest["next"]) == (["disk2"], None)
    one = found["results"][0]
    assert (one["lease"], one["owner"], one["verified"], one["method"]) == (lease.pk, "ada", True, "overwrite")
    assert operator("GET", f"erasures?serial={one['serial']}")["results"] == [one]
    assert operator("GET", f"erasures?lease={lease.pk}&verified=false")["results"] == []
    assert bob("GET", "erasures")["results"] == []
    assert ada("GET", "erasures?since=2030-01-01T00:00:00Z")["results"] == []
    for wrong in ("limit=0", "since=now", "since=2030-01-01T00:00:00", "verified=perhaps", "lease=x", "disk=sda"):
        ada("GET", f"erasures?{wrong}", code=400)
    operator("POST", "erasures", {}, code=405)
