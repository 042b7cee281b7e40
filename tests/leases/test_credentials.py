"""Credentials by operations: secrets go in and never come out."""

from __future__ import annotations

import pytest
from django.db import connection

from blueprints.models import Credential
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock_client.values import to_json
from leases.messaging import hints
from leases.models import Event
from leases.operations import credentials
from leases.operations.callers import caller

SECRET = "very-secret-c0ffee"


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def named(blueprint):
    """A blueprint whose config names the credential `lab`."""
    return blueprint("hosts", kind="ssh_host", resource_type="host", config={"credential": "lab"})


def test_they_are_stored_encrypted_and_shown_without_secrets(root, named):
    made = credentials.add(root, "lab", {"private_key": SECRET, "token": SECRET}, remark="of the lab")
    assert (made.name, made.fields, made.note, made.used_by) == (
        "lab",
        ("private_key", "token"),
        "of the lab",
        ("hosts",),
    )
    assert credentials.list_(root) == [credentials.get(root, "lab")] == [made]
    assert SECRET not in str(to_json(made)) + repr(made)
    with connection.cursor() as cursor:
        cursor.execute("SELECT secrets FROM blueprints_credential")
        assert SECRET not in cursor.fetchone()[0]
    assert Credential.objects.get().secrets["private_key"] == SECRET
    assert SECRET not in str(list(Event.objects.values()))
    assert Event.objects.get().kind == "credential.added"


def test_other_secrets_replace_all_and_wake_who_needs_them(root, named):
    credentials.add(root, "lab", {"private_key": "old", "token": "old"})
    with hints.collected() as sent:
        changed = credentials.change(root, "lab", secrets={"private_key": "new"})
    assert ("serve", ("host",)) in sent
    assert changed.fields == ("private_key",)
    assert Credential.objects.get().secrets == {"private_key": "new"}
    credentials.change(root, "lab", remark="why")
    assert (Credential.objects.get().secrets, Credential.objects.get().note) == ({"private_key": "new"}, "why")


def test_one_in_use_is_not_removed(root, named):
    credentials.add(root, "lab", {"private_key": "x"})
    with pytest.raises(Conflict, match="while these blueprints use it: hosts"):
        credentials.remove(root, "lab")
    named.delete()
    credentials.remove(root, "lab")
    assert credentials.list_(root) == []
    with pytest.raises(NotFound):
        credentials.remove(root, "lab")


@pytest.mark.parametrize(
    ("name", "secrets", "field"),
    [
        ("Not A Name", {"a": "x"}, "name"),
        ("", {"a": "x"}, "name"),
        ("lab", {}, "secrets"),
        ("lab", "text", "secrets"),
        ("lab", {"a": ""}, "secrets.a"),
        ("lab", {"a b": SECRET}, "secrets"),
        ("lab", {"a": SECRET * 10_000}, "secrets"),
    ],
)
def test_mistakes_are_named_and_quote_no_secret(root, name, secrets, field):
    with pytest.raises(InvalidRequest) as raised:
        credentials.add(root, name, secrets)
    assert raised.value.field == field
    assert SECRET not in str(raised.value)
    assert not Credential.objects.exists()


def test_a_name_is_taken_once(root):
    credentials.add(root, "lab", {"a": "x"})
    with pytest.raises(Conflict):
        credentials.add(root, "lab", {"a": "y"})
    assert Credential.objects.get().secrets == {"a": "x"}


def test_without_the_key_it_is_still_listed_and_can_be_entered_anew(root, settings):
    from cryptography.fernet import Fernet

    credentials.add(root, "lab", {"a": "x"})
    settings.DRYDOCK_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    assert credentials.get(root, "lab").fields == ()
    credentials.change(root, "lab", secrets={"a": "y"})
    assert credentials.get(root, "lab").fields == ("a",)


def test_only_operators(owner):
    ada = caller(owner)
    for act in (
        lambda: credentials.list_(ada), lambda: credentials.get(ada, "lab"), lambda: credentials.remove(ada, "lab"),
        lambda: credentials.add(ada, "lab", {"a": "x"}), lambda: credentials.change(ada, "lab", remark=""),
    ):  # fmt: skip
        with pytest.raises(NotAllowed):
            act()
