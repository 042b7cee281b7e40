"""Rotation of the encryption key: every model, interrupted and resumed, beside somebody who writes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.db import connection, connections

from blueprints.models import Blueprint, Credential
from drydock import doctor
from drydock.core import crypto, rotation
from drydock.core.fields import EncryptedTextField
from leases.models import Resource

pytestmark = pytest.mark.django_db(transaction=True)


def fresh() -> str:
    return Fernet.generate_key().decode()


@pytest.fixture
def new_key(settings: Any) -> str:
    """A key that is put in front of the others after the rows of the test have been written."""
    return fresh()


def stored() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT secrets FROM blueprints_credential ORDER BY id")
        return [row[0] for row in cursor.fetchall()]


def credentials(count: int) -> None:
    for n in range(count):
        Credential.objects.create(name=f"c{n}", secrets={"token": f"secret {n}"})


def rotated() -> int:
    last = {one.model: one.rotated for one in rotation.rotate_all(batch=2)}
    return sum(last.values())


def test_every_encrypted_field_of_every_model_is_found() -> None:
    found = {(model, name) for model, names in rotation.encrypted_models().items() for name in names}
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            assert isinstance(field, EncryptedTextField) == ((model, field.attname) in found), field
    assert {"blueprints.Credential", "leases.Resource", "leases.Lease", "leases.Job", "leases.KeptOutput"} <= {
        model._meta.label for model, _ in found
    }


def test_after_it_the_old_key_can_be_removed(settings: Any, new_key: str) -> None:
    credentials(5)
    lab = Blueprint.objects.create(name="lab", kind="fake", resource_type="fake", config={})
    Resource.objects.create(blueprint=lab, type="fake", name="a", state="active", secrets={"key": "of the resource"})
    Resource.objects.create(blueprint=lab, type="fake", name="b", state="active", secrets=None)
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key, *settings.DRYDOCK_ENCRYPTION_KEYS]
    assert sum(one.left for one in {p.model: p for p in rotation.rotate_all(dry_run=True)}.values()) == 6
    before = stored()
    assert rotated() == 6
    assert not set(before) & set(stored())
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key]
    assert [one.secrets["token"] for one in Credential.objects.order_by("pk")] == [f"secret {n}" for n in range(5)]
    assert [one.secrets for one in Resource.objects.order_by("name")] == [{"key": "of the resource"}, None]
    assert rotated() == 0


@pytest.mark.parametrize("reached", [1, 4])
def test_an_interrupted_rotation_goes_on_where_it_stopped(
    settings: Any, new_key: str, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    credentials(6)
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key, *settings.DRYDOCK_ENCRYPTION_KEYS]
    real, calls = crypto.rotate, []

    def interrupted(sealed: str) -> crypto.Ciphertext:
        if len(calls) == reached:
            raise KeyboardInterrupt
        calls.append(sealed)
        return real(sealed)

    with monkeypatch.context() as patch:
        patch.setattr(crypto, "rotate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rotated()
    kept = stored()
    assert [crypto.is_current(one) for one in kept] == [n < reached for n in range(6)]
    assert rotated() == 6 - reached
    assert stored()[:reached] == kept[:reached]
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key]
    assert [one.secrets["token"] for one in Credential.objects.order_by("pk")] == [f"secret {n}" for n in range(6)]


def elsewhere(work: Callable[[], object]) -> None:
    """Do it on a connection of its own, committed."""

    def there() -> None:
        work()
        connections.close_all()

    thread = Thread(target=there)
    thread.start()
    thread.join()


def test_a_secret_stored_meanwhile_is_kept_and_rotated(
    settings: Any, new_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(3)
    old = list(settings.DRYDOCK_ENCRYPTION_KEYS)
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key, *old]
    real, later = crypto.rotate, ["removed", "changed"]

    def between(sealed: str) -> crypto.Ciphertext:
        if later and later.pop() == "changed":
            # By a process that does not have the new key yet.
            settings.DRYDOCK_ENCRYPTION_KEYS = old
            elsewhere(lambda: Credential.objects.filter(name="c0").update(secrets={"token": "stored meanwhile"}))
            settings.DRYDOCK_ENCRYPTION_KEYS = [new_key, *old]
        elif not later and Credential.objects.filter(name="c1").exists() and sealed == second:
            elsewhere(Credential.objects.filter(name="c1").delete)
        return real(sealed)

    second = stored()[1]
    monkeypatch.setattr(crypto, "rotate", between)
    list(rotation.rotate_all())
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key]
    found = {one.name: one.secrets["token"] for one in Credential.objects.all()}
    assert found == {"c0": "stored meanwhile", "c2": "secret 2"}


def test_a_row_that_no_key_decrypts_is_named_and_stops_no_other(settings: Any, new_key: str) -> None:
    credentials(1)
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key]
    Credential.objects.create(name="readable", secrets={})
    settings.DRYDOCK_ENCRYPTION_KEYS = [fresh(), new_key]
    (progress,) = [one for one in rotation.rotate_all() if one.model == "blueprints.Credential"]
    lost = Credential.objects.get(name="c0")
    assert (progress.rotated, progress.left, progress.unreadable) == (1, 1, [str(lost.pk)])


def test_the_doctor_says_that_a_rotation_is_due(settings: Any, new_key: str) -> None:
    credentials(1)
    assert doctor.secrets()[0] is doctor.Verdict.OK
    settings.DRYDOCK_ENCRYPTION_KEYS = [new_key, *settings.DRYDOCK_ENCRYPTION_KEYS]
    verdict, _, mend = doctor.secrets()
    assert (verdict, mend) == (doctor.Verdict.WARN, "drydock secrets rotate")
    rotated()
    assert doctor.secrets()[0] is doctor.Verdict.OK
