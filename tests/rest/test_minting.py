"""Tokens that are made, seen and revoked with tokens."""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import User

from drydock.core import clock
from leases.models import Event, Lease
from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.models import Token
from tests.rest.conftest import Api


def test_a_token_makes_others_that_reach_no_further_and_end_with_it(api, owner):
    ada = api(owner, ttl="2d")
    made = ada.raw("POST", "tokens", {"name": "ci", "scope": "read", "ttl": "1h"})
    assert made.status_code == 201
    said = made.json()
    child = Api(said["token"])
    assert ada("GET", made.headers["Location"].removeprefix("/api/v1/")) == said["about"]
    assert (said["about"]["scope"], said["about"]["user"], said["about"]["tail"]) == ("read", "ada", said["token"][-4:])
    assert child("GET", "me")["scope"] == "read"
    assert said["token"] not in str(ada("GET", "tokens"))

    assert ada("POST", "tokens", {"name": "x", "scope": "operate"}, code=403)["field"] == "scope"
    assert "scope" in child("POST", "tokens", {"name": "x", "scope": "read"}, code=403)["detail"]
    assert ada("POST", "tokens", {"name": "x", "ttl": "3d"}, code=400)["field"] == "ttl"
    assert ada("POST", "tokens", {"name": "a\u200bb\n"}, code=400)["field"] == "name"
    assert "operator" in ada("POST", "tokens", {"name": "x", "user": "chief"}, code=403)["detail"]
    longest = ada("POST", "tokens", {"name": "x"}, code=201)
    grandchild = Api(longest["token"])("POST", "tokens", {"name": "y"}, code=201)
    bound = Token.objects.order_by("id").first().expires_at
    assert Token.objects.filter(expires_at__gt=bound + dt.timedelta(seconds=1)).count() == 0
    assert bound - clock.now() < dt.timedelta(days=2)

    assert ada("DELETE", f"tokens/{longest['about']['id']}")["revoked_at"] is not None
    for secret in (longest["token"], grandchild["token"]):
        assert "revoked" in Api(secret)("GET", "me", code=401)["detail"]
    child("GET", "me")
    ada("DELETE", f"tokens/{Token.objects.order_by('id').first().pk}")
    for program in (ada, child):
        program("GET", "me", code=401)


def test_whose_tokens_one_sees(api, owner, chief):
    ada, boss = api(owner), api(chief, "operate")
    User.objects.create_user("eve")
    for_eve = boss("POST", "tokens", {"name": "for eve", "user": "eve"}, code=201)
    assert Api(for_eve["token"])("GET", "me")["name"] == "eve"
    assert [one["user"] for one in ada("GET", "tokens")["results"]] == ["ada"]
    assert {one["user"] for one in boss("GET", "tokens")["results"]} == {"ada", "chief", "eve"}
    assert [one["user"] for one in boss("GET", "tokens?user=eve")["results"]] == ["eve"]
    # Without the scope of an operator one is none.
    assert {one["user"] for one in api(chief)("GET", "tokens")["results"]} == {"chief"}
    ada("DELETE", f"tokens/{for_eve['about']['id']}", code=404)
    assert boss("DELETE", f"tokens/{for_eve['about']['id']}")["revoked_at"] is not None


def test_no_token_outlives_its_maker_whatever_this_machine_says_the_time_is(api, owner, monkeypatch):
    api(owner, ttl="2h")
    maker = Token.objects.get()
    behind = clock.now() - dt.timedelta(hours=1)
    monkeypatch.setattr(clock, "now", lambda: behind)
    for ttl in (None, "2h"):
        tokens.create(caller(owner), name="ci", ttl=ttl, by=maker)
    assert list(Token.objects.filter(made_by=maker).values_list("expires_at", flat=True)) == [maker.expires_at] * 2


def test_a_token_made_for_an_owner_shows_no_private_key_and_names_its_maker(api, owner, chief, held):
    Lease.objects.filter(pk=held).update(secrets={"private_key": "-----BEGIN"})
    made = api(chief, "operate")("POST", "tokens", {"name": "x", "user": "ada"}, code=201)
    lent = Api(made["token"])
    child = Api(lent("POST", "tokens", {"name": "y"}, code=201)["token"])
    for one in (lent, child):
        assert "created by chief" in one("POST", f"leases/{held}/private_key", code=403)["detail"]
    assert api(owner)("POST", f"leases/{held}/private_key")["private_key"] == "-----BEGIN"
    child("POST", f"leases/{held}/extend", {"ttl": "3h"})
    child("POST", f"leases/{held}/release", {})
    acts = Event.objects.filter(lease=held).exclude(actor="drydock").order_by("id").values_list("kind", "actor")
    assert dict(acts)["lease.key_shown"] == "ada"
    assert [actor for kind, actor in acts if kind in ("lease.extended", "lease.release_wanted")][-1:] == [
        "chief for ada"
    ]
    assert lent("GET", "me")["name"] == "ada"
