"""Secrets are planted wherever one may be, and everything that was written is searched for them."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from blueprints.answers import Failed, Hold, Ready, Scope
from blueprints.contract import Step
from blueprints.fake.kind import Fake
from blueprints.fake.offering import FakeCloud
from blueprints.models import Credential, Reading
from blueprints.specs import BlueprintView
from drydock.core.logging import AboutFilter, JsonFormatter, RedactingFormatter, about, hidden, hide_always, redact
from leases.engine.catalogue import poll_schedule
from leases.engine.core import specs
from leases.engine.queue import serve
from leases.engine.sync import poll
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event, Job, Lease, Resource
from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.urls import V1
from tests.settings import KEYS

PLANTED = ("sesame-of-the-resource", "sesame-of-the-provider", "sesame-of-the-lease", "sesame-from-a-step")
LINES = ("b3BlbnNzaC1rZXktdjEAAAA", "AAAABG5vbmUAAAAEbm9uZQ")
KEY = "\n".join(("-----BEGIN OPENSSH PRIVATE KEY-----", *LINES, "-----END OPENSSH PRIVATE KEY-----"))


@pytest.fixture(params=["line", "json"])
def written(request):
    """What the product's own handler writes while a test runs."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    plain = RedactingFormatter("{asctime} {levelname:<7} {name}: {message}", style="{")
    handler.setFormatter(plain if request.param == "line" else JsonFormatter())
    handler.addFilter(AboutFilter())
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)
    if request.param == "json":
        for line in stream.getvalue().splitlines():
            json.loads(line)


def stored_texts() -> str:
    """Every text of every table that a person may see, as it stands in the database."""
    with connection.cursor() as cursor:
        found = []
        for table in ("event", "lease", "resource", "run", "search", "stray", "sync", "job"):
            cursor.execute(f"SELECT to_jsonb(t) - 'secrets' FROM leases_{table} t")
            found += [str(row) for row in cursor.fetchall()]
        cursor.execute("SELECT message FROM blueprints_rememberederror")
        return "\n".join([*found, *(str(row) for row in cursor.fetchall())])


def every(spec) -> str:
    lease = spec.lease.secrets if spec.lease else ""
    return f"{spec.resource.secrets} {spec.resource.blueprint.credentials} {lease}"


ANSWERS = {
    "raised": lambda spec: (_ for _ in ()).throw(OSError(f"could not sign in with {every(spec)}")),
    "failed": lambda spec: Failed(scope=Scope.STEP, message=f"refused: {every(spec)}", code="x"),
    "log": lambda spec: Ready(log=f"+ login {every(spec)} {PLANTED[3]}\n{KEY}", secrets={"more": PLANTED[3]}),
    "hold": lambda spec: Hold(who="somebody", what=f"try {every(spec)}"),
    "no answer": lambda spec: every(spec),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_no_log_event_or_message_repeats_a_secret(how, blueprint, ask, written, monkeypatch):
    Credential.objects.create(name="cloud", secrets={"key": PLANTED[1]})
    blueprint()
    lease = ask()
    serve.serve("fake")
    Lease.objects.update(secrets={"password": PLANTED[2]})
    Resource.objects.update(secrets={"password": PLANTED[0], "key": KEY})
    monkeypatch.setattr("leases.engine.core.specs.blueprint_view", with_credentials)
    called = []

    def leaks(spec, memo):
        called.append(spec)
        assert all(secret in every(spec) for secret in PLANTED[:2])
        return ANSWERS[how](spec)

    monkeypatch.setattr(Fake, "build", lambda self: (Step(name="leak", act=leaks),))
    settle()
    assert called
    assert Event.objects.filter(lease=lease).exists()
    everything = written.getvalue() + stored_texts()
    for secret in (*PLANTED, *LINES):
        assert secret not in everything, how
    if how == "raised":
        assert "could not sign in with" in written.getvalue()
        assert f"resource={called[0].resource.id}" in written.getvalue() or '"resource": ' in written.getvalue()


@pytest.mark.parametrize("wrong", ["fields", "answer"])
def test_a_poll_that_fails_logs_no_secret_of_its_credential(wrong, blueprint, written, monkeypatch):
    def leaks(self, account):
        raise OSError(f"could not sign in with {account.secrets}")

    odd = {"odd": PLANTED[0]} if wrong == "fields" else {}
    Credential.objects.create(name="cloud", secrets={"provider": PLANTED[1], **odd})
    blueprint("shop", kind="fake_cloud", config={"provider": "shop", "credential": "cloud"})
    if wrong == "answer":
        monkeypatch.setattr(FakeCloud, "places", leaks)
    poll_schedule.due()
    reading = Reading.objects.get(what="places")
    Reading.objects.update(due_at="2020-01-01T00:00Z")
    assert poll.read(reading.pk)
    reading.refresh_from_db()
    assert reading.message
    for secret in PLANTED[:2]:
        assert secret not in written.getvalue() + reading.message


def with_credentials(row, *, secrets=False):
    found = {c.name: c.secrets for c in Credential.objects.all()} if secrets else {}
    return BlueprintView(
        id=row.pk, name=row.name, kind=row.kind, generation=row.generation, config=specs.config(row.kind, row.config),
        credentials=found,
    )  # fmt: skip


def test_keys_of_the_installation_are_never_printed():
    hide_always(["of-the-installation"])
    assert redact("it is of-the-installation, you see") == "it is ***, you see"


def test_a_private_key_is_blotted_out_even_when_it_is_cut():
    assert redact(f"before\n{KEY}\nafter") == "before\n***\nafter"
    assert redact(f"before\n{KEY[:60]}") == "before\n***"


def test_words_of_everyday_text_stay():
    with hidden({"pin": "1234", "word": "on"}):
        assert redact("1234 is on") == "1234 is on"


def test_ids_are_on_each_line_of_their_block_and_no_longer(written):
    log = logging.getLogger("drydock.test")
    with about(lease=7), about(resource=9, run=None):
        log.warning("inside")
    log.warning("outside")
    inside, outside = written.getvalue().splitlines()
    if inside.startswith("{"):
        assert (json.loads(inside)["lease"], json.loads(inside)["resource"]) == (7, 9)
        assert json.loads(outside)["message"] == "outside"
        assert "lease" not in json.loads(outside)
    else:
        assert inside.endswith("inside [lease=7 resource=9]")
        assert outside.endswith("outside")


INPUT = "sesame-given-to-a-job"


def everything_shown(chief: User, ids: dict[str, int | str]) -> Iterator[tuple[str, str]]:
    """Every page of the console and every answer of the API that can be looked at, under its address."""
    console = Client()
    console.force_login(chief)
    for model in (
        found for label in ("blueprints", "leases", "rest") for found in apps.get_app_config(label).get_models()
    ):
        at = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        addresses = [
            reverse(f"{at}_changelist"),
            *(reverse(f"{at}_change", args=(row.pk,)) for row in model.objects.all()[:3]),
        ]
        yield from ((address, console.get(address).content.decode(errors="replace")) for address in addresses)
    _, secret = tokens.create(caller(chief), name="test", scope="operate")
    for address in V1:
        for kind in ("leases", "resources", "blueprints", "credentials", "jobs", "events"):
            filled = address.replace("<id:id>", str(ids[kind])).replace("<word:name>", str(ids[kind]))
            if address.startswith(kind) and not address.endswith(("key", "events/stream")):
                answer = Client().get(f"/api/v1/{filled}", headers={"Authorization": f"Bearer {secret}"})
                yield filled, b"".join(answer).decode(errors="replace")


def test_no_face_shows_a_secret(blueprint, ask, until):
    """Planted in a credential, a lease, a resource and a job; looked for in console, REST, Python and shell values."""
    chief = User.objects.create_superuser("chief")
    blueprint(config={"capacity": {"slots": 4}})
    lease = until(ask(by=chief), state="active")
    client = LocalClient(caller(chief))
    client.add_credential("cloud", {"key": PLANTED[1], "private_key": KEY})
    job = client.start_job(lease.pk, ["true"], env={"TOKEN": PLANTED[3]}, stdin=INPUT.encode())
    Lease.objects.update(secrets={"password": PLANTED[2], "private_key": KEY})
    Resource.objects.update(secrets={"password": PLANTED[0], "key": KEY})
    ids = {"leases": lease.pk, "resources": lease.resource_id, "blueprints": "pool", "credentials": "cloud"}
    shown = dict(everything_shown(chief, {**ids, "jobs": job.id, "events": Event.objects.latest("id").pk}))
    assert len(shown) > 40
    assert any("cloud" in text for at, text in shown.items() if "credential" in at)
    looks = (client.leases, client.resources, client.blueprints, client.credentials, client.jobs, client.events)
    shown |= {look.__name__: repr(look()) for look in looks}
    shown["rows"] = stored_texts()
    shown["__repr__"] = repr(
        [*Lease.objects.all(), *Resource.objects.all(), *Credential.objects.all(), *Job.objects.all()]
    )
    for at, text in shown.items():
        assert not [planted for planted in (*PLANTED, *LINES, INPUT) if planted in text], at


PASSWORDS = ("sesame-of-the-database", "sesame-of-the-broker")
NOWHERE = {
    "DATABASE_URL": f"postgresql://drydock:{PASSWORDS[0]}@127.0.0.1:1/drydock", "DRYDOCK_LOG_LEVEL": "DEBUG",
    "BROKER_URL": f"redis://:{PASSWORDS[1]}@127.0.0.1:1/0", "DRYDOCK_DEBUG": "1", **KEYS,
    "DJANGO_SETTINGS_MODULE": "drydock.settings", "PYTHONUNBUFFERED": "1",
}  # fmt: skip
"""Servers that nobody reaches, and everything said that can be said."""


@pytest.fixture
def without_servers():
    return {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")} | NOWHERE


def said_secrets(text: str) -> list[str]:
    return [secret for secret in (*PASSWORDS, *KEYS.values()) if secret in text]


@pytest.mark.parametrize("words", [("leases",), ("doctor",), ("migrate",)], ids=" ".join)
def test_no_traceback_of_the_shell_repeats_a_password(words, without_servers):
    command = [sys.executable, "-m", "drydock", *words]
    done = subprocess.run(command, env=without_servers, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "127.0.0.1" in done.stdout + done.stderr
    assert not said_secrets(done.stdout + done.stderr)


def test_a_worker_that_reaches_nobody_repeats_no_password_and_shows_none_in_the_list_of_processes(
    without_servers, tmp_path
):
    log = tmp_path / "log"
    command = [sys.executable, "-m", "celery", "-A", "drydock.celery", "worker", "-c", "1", "--loglevel", "DEBUG"]
    with log.open("wb") as output:
        worker = psutil.Popen(command, env=without_servers, stdout=output, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 100
        while "Cannot connect" not in log.read_text():
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        lines = [Path(f"/proc/{one.pid}/cmdline").read_text() for one in (worker, *worker.children(recursive=True))]
    finally:
        for one in (*worker.children(recursive=True), worker):
            one.kill()
        worker.wait()
    assert not said_secrets(log.read_text() + " ".join(lines))
