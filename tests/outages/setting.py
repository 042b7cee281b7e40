"""`python -m tests.outages.setting`: tables, owners, a pool, and an operator's token and session in the folder of the
logs."""

from __future__ import annotations

import os
from pathlib import Path

OWNERS = ("ada", "bob")


def main() -> None:
    """Prepare the installation."""
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.core.management import call_command

    from blueprints.models import Blueprint
    from drydock.sessions import SessionStore
    from leases.operations.callers import caller
    from leases.rest import tokens
    from leases.rest.models import Scope

    call_command("migrate", verbosity=0, interactive=False)
    users = get_user_model().objects
    for owner in OWNERS:
        users.create_user(owner)
    Blueprint.objects.create(
        name="pool", kind="fake_activated", resource_type="fake_activated", audience="everyone", max_resources=2,
        config={"provider": "outage", "boot_polls": 1, "poll_seconds": 0.1, "capacity": {"slots": 4}},
    )  # fmt: skip
    root = users.create_superuser("root", password="not a secret 123")
    _, secret = tokens.create(caller(root), name="test", scope=Scope.OPERATE)
    kept = Path(os.environ["DRYDOCK_STATE"]) / "said"
    (kept / "token").write_text(secret)
    session = SessionStore()
    session[SESSION_KEY], session[BACKEND_SESSION_KEY] = str(root.pk), settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = root.get_session_auth_hash()
    session.create()
    (kept / "session").write_text(str(session.session_key))


if __name__ == "__main__":
    main()
