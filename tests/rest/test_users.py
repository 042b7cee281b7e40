"""Users and groups: administered by administrators alone, recorded, and at work at once."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock.up import sign_in
from leases.models import Event
from leases.operations import permissions, users
from leases.operations.callers import caller
from leases.rest import tokens


@pytest.fixture
def root(db):
    return caller(User.objects.create_superuser("root"))


def test_a_user_is_added_with_a_password_that_works_and_is_recorded_without_it(root, client):
    made = users.add(root, "ada@lab.example", groups=["lab"])
    assert made.user.groups == ("lab",)
    assert (made.user.operator, made.user.password) == (False, True)
    assert User.objects.get(username="ada@lab.example").check_password(made.password)
    with pytest.raises(Conflict):
        users.add(root, "ada@lab.example")
    again = users.set_password(root, "ada@lab.example", password="a long word of mine")
    assert again.password == ""
    assert User.objects.get(username="ada@lab.example").check_password("a long word of mine")
    events = list(Event.objects.filter(kind__startswith="user.").order_by("id"))
    assert [e.kind for e in events] == ["user.added", "user.password_set"]
    assert all(made.password not in f"{e.message}{e.details}" for e in events)


@pytest.mark.parametrize(
    ("field", "given"),
    [("user", {"user": "a b"}), ("user", {"user": ""}), ("password", {"user": "eve", "password": "12345678"}),
     ("password", {"user": "eve", "password": ""}), ("groups", {"user": "eve", "groups": [" "]})],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_field(root, field, given):
    with pytest.raises(InvalidRequest) as refused:
        users.add(root, **given)
    assert refused.value.field == field
    assert User.objects.count() == 1


def test_a_disabled_user_can_neither_sign_in_nor_use_a_token(root, api, chief):
    users.add(root, "ada")
    program = api(User.objects.get(username="ada"))
    assert program("GET", "me")["name"] == "ada"
    assert users.disable(root, "ada").active is False
    program("GET", "me", code=401)
    assert users.enable(root, "ada").active is True
    assert program("GET", "me")["name"] == "ada"
    with pytest.raises(Conflict, match="yourself"):
        users.disable(root, "root")


def test_groups_open_blueprints_at_once(root, blueprint, ask, until):
    blueprint("guarded", audience="authorized", config={"boot_polls": 0})
    permissions.authorize(root, "guarded", group=_group("lab"))
    adam = User.objects.create_user("adam")
    permissions.ask(caller(adam), "guarded")
    lease = ask(by=adam)
    until(lease, state="pending", reason="waiting_authorization")
    assert users.change_groups(root, "adam", add=["lab"]).groups == ("lab",)
    until(lease, state="active")
    with pytest.raises(NotFound, match="not in group"):
        users.change_groups(root, "adam", remove=["other"])
    assert users.change_groups(root, "adam", remove=["lab"]).groups == ()


def _group(name: str) -> str:
    from django.contrib.auth.models import Group

    return Group.objects.get_or_create(name=name)[0].name


def test_only_an_administrator_may_and_not_with_a_token_that_another_made(root, api, chief):
    for who in (caller(chief), caller(User.objects.create_user("eve"))):
        for act in (lambda w: users.list_(w), lambda w: users.add(w, "x"), lambda w: users.set_password(w, "root")):
            with pytest.raises(NotAllowed):
                act(who)
    boss = User.objects.get(username="root")
    own = api(boss, "operate")
    assert [u["name"] for u in own("GET", "users")["results"]] == ["chief", "eve", "root"]
    assert own("POST", "users", {"user": "new", "groups": ["lab"]}, code=201)["password"]
    assert own("POST", "users/new/groups", {"remove": ["lab"]})["groups"] == []
    assert own("POST", "users/new/disable")["active"] is False
    assert own("POST", "users/new/password", {"password": "quite another word"})["password"] == ""
    api(boss, "lease")("GET", "users", code=403)
    _, secret = tokens.create(caller(chief), name="t", scope="operate", owner="root")
    own.secret = secret
    assert "chief" in own("POST", "users/root/password", {}, code=403)["detail"]


def test_somebody_can_sign_in_after_any_command_came_first(db):
    """A command makes the user of the operating system an administrator who has no password."""
    from drydock.cli.toolkit.session import make_operator

    make_operator("root")
    said = sign_in()
    name, password = said.split("sign in as ")[1].split()[0], said.split(" with ")[1].split()[0]
    assert User.objects.get(username=name).check_password(password)
    again = sign_in()
    assert f"sign in as {name}" in again
    assert password not in again
    assert f"drydock users password {name}" in again


def test_nobody_becomes_an_administrator_by_being_called_admin(db):
    User.objects.create_user("admin", password="a word that is known")
    assert "sign in as admin " not in sign_in()
    assert not User.objects.get(username="admin").is_superuser
