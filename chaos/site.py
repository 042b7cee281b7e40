"""An installation of its own for one run: state folder, private engines, pools and owners."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from datetime import timedelta
from pathlib import Path

from chaos.orders import Order
from chaos.plan import Plan
from chaos.provider import Pool

OPERATOR = "chaos-operator"
QUICK = {
    "DRYDOCK_SWEEP_INTERVAL_SECONDS": "1",
    "DRYDOCK_STEP_TOKEN_SECONDS": "5",
    "DRYDOCK_STEP_BACKOFF_SECONDS": "0.1",
    "DRYDOCK_STEP_BACKOFF_LIMIT_SECONDS": "1",
    "DRYDOCK_HEAD_RESERVATION_SECONDS": "3",
    "DRYDOCK_LOST_WORKER_SECONDS": "5",
    "DRYDOCK_VISIBILITY_TIMEOUT_SECONDS": "10",
    "DRYDOCK_DISCOVERY_INTERVAL_SECONDS": "10",
    "DRYDOCK_ENGINE_LINGER_SECONDS": "0.5",
    "DRYDOCK_BROKER_PREFIX": "chaos:",
}
"""Shorter times than in earnest, so that a run of a minute sees what else takes hours."""


def make_state() -> Path:
    """A state folder under /tmp that the engines' account can pass through."""
    state = Path(tempfile.mkdtemp(prefix="dd-chaos-", dir="/tmp"))
    state.chmod(0o711 if os.geteuid() == 0 else 0o700)
    (state / "said").mkdir()
    (state / "tmp").mkdir()
    return state


def prepare_environment(state: Path, durable: bool) -> None:
    """Before Django reads its settings: this installation and no other, in this process and in its children."""
    for name in [name for name in os.environ if name.startswith("DRYDOCK_")] + ["DATABASE_URL", "BROKER_URL"]:
        os.environ.pop(name, None)
    os.environ |= QUICK | {
        "DRYDOCK_STATE": str(state),
        "DRYDOCK_FAKE_CLOUD": str(state / "cloud"),
        "TMPDIR": str(state / "tmp"),
        "DRYDOCK_ENGINE_DURABLE": str(int(durable)),
        "DJANGO_SETTINGS_MODULE": "drydock.settings",
        "PYTHONWARNINGS": "ignore",
    }


def free_port() -> int:
    """A port of the loopback address that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare_database(plan: Plan) -> None:
    """Tables, the journal beside them, an operator, owners with quotas, and the pools."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connection

    from leases.models import Quota

    call_command("migrate", verbosity=0, interactive=False)
    with connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_name("journal.sql").read_text())
    users = get_user_model().objects
    users.create_superuser(username=OPERATOR)
    for number in range(plan.scale.clients):
        kept = sum(len(order.requests) for order in _of(plan, number) if order.keep)
        owner = users.create_user(username=owner_name(number))
        Quota.objects.create(user=owner, max_leases=kept + max(8, plan.scale.leases // 20))
    for pool in plan.pools:
        _make(pool)


def _of(plan: Plan, client: int) -> list[Order]:
    return [order for order in plan.orders if order.client == client]


def owner_name(client: int) -> str:
    """The owner for whom a client asks."""
    return f"chaos-owner-{client}"


def _make(pool: Pool) -> None:
    from blueprints.models import Blueprint

    spans = {name for name in pool.columns if name in ("idle_timeout", "check_interval", "max_lifetime")}
    columns = {name: timedelta(seconds=value) if name in spans else value for name, value in pool.columns.items()}
    Blueprint.objects.create(
        name=pool.name, kind=pool.kind, resource_type=pool.kind, audience="everyone", config=pool.config, **columns
    )


def close_engines(state: Path) -> bool:
    """Leave the engines, whose last user this process must be, and wait until they are down."""
    from django.db import connections

    from drydock.engines import Config, leave, wait_until_stopped

    connections.close_all()
    leave(state)
    return wait_until_stopped(Config(state=state), 40)


def remove(state: Path) -> bool:
    """Remove the state folder; True when nothing of it is left."""
    shutil.rmtree(state, ignore_errors=True)
    return not state.exists()
