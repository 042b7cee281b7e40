"""Tokens: hashed, scoped, expiring, revocable, and shown once."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client as Browser
from django.urls import reverse

from drydock.core import clock
from drydock.core.errors import InvalidRequest, NotAllowed, NotFound
from leases.models import Event
from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.models import Token
from tests.rest.conftest import Api


def test_only_a_digest_is_kept(owner):
    made, secret = tokens.create(caller(owner), name="laptop")
    assert re.fullmatch(r"ddk_[A-Za-z0-9_-]{43}", secret)
    assert (made.user, made.scope, made.tail) == ("ada", "lease", secret[-4:])
    with connection.cursor() as cursor:
        cursor.execute("SELECT t::text FROM rest_token t UNION ALL SELECT e::text FROM leases_event e")
        assert not any(secret in row or secret[4:24] in row for (row,) in cursor.fetchall())
    assert Event.objects.filter(kind="token.created", actor="ada").count() == 1


@pytest.mark.parametrize("header", ["Bearer ddk_nonsense", "Bearer", "Basic YTpi", "Token x", "Bearer " + "x" * 9000])
def test_what_is_no_token_is_refused(owner, header):
    answer = Api("").raw("GET", "leases", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_no_token_is_401_on_every_address_and_no_session_helps(owner, chief):
    from leases.rest.urls import V1

    browser = Browser()
    browser.force_login(chief)
    for address, view in V1.items():
        path = address.replace("<id:id>", "1").replace("<word:name>", "x").replace("<user:user>", "x")
        for method in (m for m in ("get", "post", "put", "patch", "delete") if hasattr(view, m)):
            for one in (Browser(), browser):
                answer = one.generic(method.upper(), f"/api/v1/{path}", b"{}", content_type="application/json")
                assert answer.status_code == 401, (method, path, answer.content)


def test_an_expired_a_revoked_and_an_inactive_ones_are_refused(owner, api):
    ada = api(owner)
    ada("GET", "me")
    Token.objects.update(expires_at=clock.now() - dt.timedelta(seconds=1))
    assert "expired" in ada("GET", "me", code=401)["detail"]
    Token.objects.update(expires_at=clock.now() + dt.timedelta(hours=1))
    ada("GET", "me")
    tokens.revoke(caller(owner), Token.objects.get().pk)
    assert "revoked" in ada("GET", "me", code=401)["detail"]

    other = api(owner)
    User.objects.update(is_active=False)
    assert "not active" in other("GET", "me", code=401)["detail"]


def test_a_scope_reaches_no_further(owner, chief, api, blueprint):
    blueprint()
    reads, leases, operates = (api(chief, scope) for scope in ("read", "lease", "operate"))
    assert [one("GET", "me")["operator"] for one in (reads, leases, operates)] == [False, False, True]
    assert "scope" in reads("POST", "leases", {"type": "fake"}, code=403)["detail"]
    mine = leases("POST", "leases", {"type": "fake"}, code=201)
    theirs = api(owner)("POST", "leases", {"type": "fake"}, code=201)
    assert reads("GET", f"leases/{mine['id']}")["owner"] == "chief"
    leases("GET", f"leases/{theirs['id']}", code=404)
    assert operates("GET", f"leases/{theirs['id']}")["owner"] == "ada"
    assert "scope" in leases("POST", "blueprints/pool/disable", code=403)["detail"]
    assert operates("POST", "blueprints/pool/disable")["enabled"] is False
    # The scope of a token makes nobody an operator.
    assert "operator" in api(owner, "operate")("POST", "sweep", code=403)["detail"]


def test_the_last_use_is_noted_but_not_every_time(owner, api, django_assert_num_queries):
    ada = api(owner)
    ada("GET", "me")
    used = Token.objects.get().last_used_at
    assert used is not None
    with django_assert_num_queries(1):
        ada("GET", "me")
    assert Token.objects.get().last_used_at == used


def test_a_token_may_ask_only_so_often(owner, api, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"requests_per_minute": 3})
    ada, same, other = api(owner), api(owner), api(User.objects.create_user("eve"))
    for one in (ada, same, ada):
        one("GET", "me")
    answer = ada.raw("GET", "me")
    assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert same.raw("GET", "me").status_code == 429, "more tokens are no more requests"
    other("GET", "me")


def test_a_user_has_only_so_many_tokens_and_they_are_listed_in_pages(owner, api, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"tokens_limit": 3})
    ada = api(owner)
    made = [ada("POST", "tokens", {"name": f"t{n}"}, code=201)["about"]["id"] for n in range(2)]
    refused = ada("POST", "tokens", {"name": "one more"}, code=409)
    assert ("3 valid tokens" in refused["detail"], "Revoke" in refused["hint"]) == (True, True)
    first = ada("GET", "tokens?limit=2")
    assert [one["id"] for one in first["results"]] == made[::-1]
    rest = ada("GET", f"tokens?limit=2&cursor={first['next']}")
    assert ([one["name"] for one in rest["results"]], rest["next"]) == (["test"], None)
    ada("DELETE", f"tokens/{made[0]}")
    ada("POST", "tokens", {"name": "one more"}, code=201)


def test_who_may_make_list_and_revoke_which(owner, chief):
    ada, boss = caller(owner), caller(chief)
    made, _ = tokens.create(boss, name="for ada", owner="ada")
    assert made.user == "ada"
    tokens.create(boss, name="own")
    assert [one.name for one in tokens.list_(ada)] == ["for ada"]
    assert len(tokens.list_(boss)) == 2
    assert [one.name for one in tokens.list_(boss, owner="ada")] == ["for ada"]
    with pytest.raises(NotAllowed):
        tokens.create(ada, name="x", owner="chief")
    with pytest.raises(NotFound):
        tokens.revoke(ada, tokens.list_(boss, owner="chief")[0].id)
    assert tokens.revoke(ada, made.id).revoked_at is not None
    first = tokens.revoke(ada, made.id).revoked_at
    assert tokens.revoke(ada, made.id).revoked_at == first


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"), ({"name": "a\0b"}, "name"), ({"name": "x" * 64}, "name"),
        ({"scope": "all"}, "scope"), ({"ttl": "0s"}, "ttl"), ({"ttl": "3000d"}, "ttl"), ({"ttl": "soon"}, "ttl"),
    ],
)  # fmt: skip
def test_mistakes_name_their_field(owner, given, field):
    with pytest.raises(InvalidRequest) as raised:
        tokens.create(caller(owner), **{"name": "x", **given})
    assert raised.value.field == field
    assert not Token.objects.exists()


def test_the_admin_shows_a_new_one_once_and_revokes_it(chief):
    boss = User.objects.create_superuser("boss")
    browser = Browser()
    browser.force_login(boss)
    given = {"user": chief.pk, "name": "ci", "scope": "operate", "ttl": "2d"}
    made = browser.post(reverse("admin:rest_token_add"), given)
    assert made.status_code == 200
    assert "no-store" in made.headers["Cache-Control"]
    secret = re.search(r"ddk_[A-Za-z0-9_-]{43}", made.content.decode())[0]
    assert Api(secret)("GET", "me")["name"] == "chief"
    token = Token.objects.get()
    for page in (reverse("admin:rest_token_changelist"), reverse("admin:rest_token_change", args=(token.pk,))):
        shown = browser.get(page)
        assert shown.status_code == 200
        assert secret not in shown.content.decode()
        assert token.digest not in shown.content.decode()
    browser.post(reverse("admin:rest_token_act", args=("revoke",)) + f"?ids={token.pk}")
    Api(secret)("GET", "me", code=401)


def test_the_admin_makes_nothing_that_reaches_further_than_who_uses_it(chief):
    """The permission to add tokens is no way round all the others."""
    boss = User.objects.create_superuser("boss")
    chief.user_permissions.add(*Permission.objects.filter(codename__in=("add_token", "view_token")))
    browser = Browser()
    browser.force_login(chief)
    address = reverse("admin:rest_token_add")
    assert "operate" not in browser.get(address).content.decode().split("<form", 2)[-1]
    for given in ({"user": boss.pk, "scope": "lease"}, {"user": chief.pk, "scope": "operate"}):
        assert browser.post(address, {"name": "ci", "ttl": "2d", **given}).status_code == 200
        assert not Token.objects.exists()
    browser.post(address, {"name": "ci", "ttl": "2d", "user": chief.pk, "scope": "lease"})
    assert Token.objects.get().user == chief
