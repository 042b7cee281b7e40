"""Whoever reads the table of sessions opens nothing with it."""

from __future__ import annotations

import importlib

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client

from drydock.sessions import SessionStore, digest

pytestmark = pytest.mark.django_db


def opens(key: str) -> bool:
    """Whether a browser with this key is in the console."""
    browser = Client()
    browser.cookies["sessionid"] = key
    return browser.get("/admin/").status_code == 200


def test_a_rows_key_opens_nothing() -> None:
    root = User.objects.create_superuser("root", password="x")
    browser = Client()
    browser.force_login(root)
    key = browser.cookies["sessionid"].value
    assert opens(key)
    row = Session.objects.get()
    assert row.session_key == digest(key)
    assert key not in f"{row.session_key} {row.session_data} {row.get_decoded()}"
    assert not opens(row.session_key)
    assert not opens(digest(row.session_key))


def test_signing_out_ends_it_and_signing_in_changes_the_key() -> None:
    root = User.objects.create_superuser("root", password="x")
    browser = Client()
    browser.force_login(root)
    key = browser.cookies["sessionid"].value
    browser.post("/admin/logout/")
    assert not opens(key)
    assert not Session.objects.exists()


def test_a_session_is_written_read_renewed_and_removed_by_its_key() -> None:
    session = SessionStore()
    session["a"] = 1
    session.save()
    key = session.session_key
    assert key
    assert SessionStore(key)["a"] == 1
    assert SessionStore().exists(key)
    session.cycle_key()
    assert session.session_key != key
    assert not SessionStore().exists(key)
    assert SessionStore(session.session_key)["a"] == 1
    session.flush()
    assert not Session.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_so_it_is_for_views_that_are_coroutines() -> None:
    async def live() -> None:
        session = SessionStore()
        await session.aset("a", 1)
        await session.asave()
        key = session.session_key
        assert await SessionStore(key).aget("a") == 1
        assert await SessionStore().aexists(str(key))
        assert await Session.objects.filter(session_key=digest(str(key))).aexists()
        await session.adelete()
        assert not await SessionStore().aexists(str(key))

    async_to_sync(live)()


def test_the_migration_ends_sessions_of_the_old_form() -> None:
    session = SessionStore()
    session.create()
    with connection.schema_editor() as editor:
        importlib.import_module("leases.migrations.0023_sessions").end_sessions(apps, editor)
    assert not Session.objects.exists()
