"""Encrypted fields: opened on access, kept under rotation, never searchable."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import connection, models
from django.test.utils import isolate_apps

from drydock.core import crypto
from drydock.core.fields import EncryptedJSONField, EncryptedTextField
from drydock.core.rotation import rotate_model

pytestmark = pytest.mark.django_db


@pytest.fixture
def secret_row(db):
    with isolate_apps("drydock"):

        class Row(models.Model):
            name = models.CharField(max_length=20)
            secret = EncryptedJSONField(default=dict, null=True)
            note = EncryptedTextField(default="")

            class Meta:
                app_label = "drydock"

            def __str__(self) -> str:
                return self.name

        with connection.schema_editor() as editor:
            editor.create_model(Row)
        yield Row


def stored(model, column="secret"):
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT "{column}" FROM "{model._meta.db_table}"')
        return [row[0] for row in cursor.fetchall()]


def test_a_value_is_encrypted_in_the_row_and_plain_in_the_program(secret_row):
    secret_row.objects.create(name="a", secret={"password": "hunter2"}, note="quiet")
    assert "hunter2" not in stored(secret_row)[0]
    assert "quiet" not in stored(secret_row, "note")[0]
    row = secret_row.objects.get()
    assert (row.secret, row.note) == ({"password": "hunter2"}, "quiet")


def test_a_changed_value_is_saved_and_none_stays_null(secret_row):
    row = secret_row.objects.create(name="a", secret={"n": 1})
    row = secret_row.objects.get()
    row.secret["n"] = 2
    row.save()
    assert secret_row.objects.get().secret == {"n": 2}
    row.secret = None
    row.save()
    assert stored(secret_row) == [None]
    assert secret_row.objects.filter(secret__isnull=True).count() == 1


def test_an_unknown_key_shows_on_access_not_on_listing_and_saving_keeps_the_ciphertext(secret_row, settings):
    secret_row.objects.create(name="a", secret={"n": 1})
    before = stored(secret_row)
    settings.DRYDOCK_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    row = secret_row.objects.get()
    row.name = "b"
    row.save()
    assert stored(secret_row) == before
    with pytest.raises(crypto.Undecryptable, match="DRYDOCK_ENCRYPTION_KEYS"):
        _ = row.secret


def test_rotation_by_a_new_first_key(secret_row, settings):
    secret_row.objects.create(name="a", secret={"n": 1}, note="x")
    old = list(settings.DRYDOCK_ENCRYPTION_KEYS)
    new = Fernet.generate_key().decode()
    settings.DRYDOCK_ENCRYPTION_KEYS = [new, *old]
    assert secret_row.objects.get().secret == {"n": 1}
    assert [one.rotated for one in rotate_model(secret_row)] == [1]
    settings.DRYDOCK_ENCRYPTION_KEYS = [new]
    assert secret_row.objects.get().secret == {"n": 1}
    assert secret_row.objects.get().note == "x"


@pytest.mark.parametrize("option", ["unique", "db_index", "primary_key"])
def test_what_cannot_work_is_refused(option):
    with pytest.raises(ImproperlyConfigured, match=option):
        EncryptedTextField(**{option: True})


def test_searching_is_refused(secret_row):
    with pytest.raises(FieldError, match="encrypted"):
        secret_row.objects.filter(secret={"n": 1}).exists()


def test_a_bad_key_is_named(settings):
    settings.DRYDOCK_ENCRYPTION_KEYS = ["short"]
    with pytest.raises(crypto.BadKey, match="Fernet keys"):
        crypto.encrypt("x")
