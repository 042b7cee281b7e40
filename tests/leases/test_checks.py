"""`manage.py check` in somebody else's project names what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leases import checks

ROOT = Path(__file__).parents[2]
BARE = """
SECRET_KEY = "x"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "blueprints", "leases"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
"""


@pytest.mark.parametrize("command", ["check", "migrate"])
def test_a_project_without_anything_is_told_all_of_it(tmp_path, command):
    (tmp_path / "bare.py").write_text(BARE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    given = kept | {"DJANGO_SETTINGS_MODULE": "bare", "PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-m", "django", command], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 1
    for said in (
        "DRYDOCK = environment.load()", "keys.encryption_keys(DRYDOCK)", "keys.ownership_key(DRYDOCK)",
        "The database 'default' is SQLite; leases need PostgreSQL 15 or later.", "No Celery app with a broker",
    ):  # fmt: skip
        assert said in done.stderr, done.stderr
    assert "OperationalError" not in done.stderr
    assert "syntax error" not in done.stderr


def test_our_own_project_lacks_a_blueprint_at_most(db, blueprint):
    found = [*checks.settings_there(None), *checks.postgresql(None), *checks.celery_app(None)]
    assert found == []
    assert [one.id for one in checks.blueprint_there(None, databases=["default"])] == ["leases.W002"]
    assert checks.blueprint_there(None, databases=None) == []
    blueprint()
    assert checks.blueprint_there(None, databases=["default"]) == []
