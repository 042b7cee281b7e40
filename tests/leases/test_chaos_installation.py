"""Found by chaos: a fresh installation, whose generated ownership key is written at its first use."""

from __future__ import annotations

import uuid

from django.utils.functional import SimpleLazyObject

from drydock import keys
from leases.engine.core import installation


def test_the_first_fingerprint_of_a_fresh_installation_is_the_one_of_ever_after(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_cluster", lambda: "cluster")
    fresh = {"state": tmp_path, "ownership_key": type(settings.DRYDOCK.ownership_key)(""), "database_url": ""}
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update=fresh)
    settings.DRYDOCK_OWNERSHIP_KEY = SimpleLazyObject(lambda: keys.ownership_key(settings.DRYDOCK))
    name = uuid.uuid4()
    assert installation.fingerprint(name) == installation.fingerprint(name)
