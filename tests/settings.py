"""Settings of the test run: the product's own, on engines of the run or on DATABASE_URL and BROKER_URL.

Processes that tests start read these too, so that a worker meets the test database and its own queues.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

STATE = "DRYDOCK_TEST_STATE"
DATABASE = "DRYDOCK_TEST_DATABASE"
KEYS = {
    "DRYDOCK_SECRET_KEY": "for tests only, and long enough that Django finds nothing to warn about 12345",
    "DRYDOCK_ENCRYPTION_KEYS": "ZHJ5ZG9jayB0ZXN0cyBvbmx5LCAzMiBieXRlcyBvayE=",
    "DRYDOCK_OWNERSHIP_KEY": "for tests only",
}


def prepare() -> None:
    """A state folder for this run, shared by its xdist workers, and settings that make tests fast."""
    if STATE not in os.environ:
        os.environ[STATE] = tempfile.mkdtemp(prefix="dd-", dir="/tmp")
        if os.geteuid() == 0:
            Path(os.environ[STATE]).chmod(0o711)
    state = Path(os.environ[STATE])
    os.environ["DRYDOCK_STATE"] = str(state)
    os.environ["TMPDIR"] = str(_temporary(state))
    # Tests start a thousand processes: compiling what each imports would take a third of a second of each.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    os.environ["DRYDOCK_ENGINE_DURABLE"] = "0"
    os.environ["DRYDOCK_INLINE"] = "0"
    os.environ["DRYDOCK_LEASE_HOURS"] = os.environ["DRYDOCK_LEASE_HOURS_LIMIT"] = "0"
    os.environ["DRYDOCK_ENGINE_LINGER_SECONDS"] = "0.2"
    os.environ["DRYDOCK_BROKER_PREFIX"] = f"{state.name}:{os.environ.get('PYTEST_XDIST_WORKER', 'main')}:"
    for name, value in KEYS.items():
        os.environ.setdefault(name, value)


def _temporary(state: Path) -> Path:
    """Where processes put temporary files: one that is killed leaves them, and the run's end removes them."""
    folder = state / "tmp"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    return folder


prepare()

from drydock.settings import *  # noqa: E402, F403
from drydock.settings import DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES["default"]["CONN_MAX_AGE"] = 0
if os.environ.get(DATABASE):
    DATABASES["default"]["NAME"] = os.environ[DATABASE]
