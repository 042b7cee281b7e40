"""`drydock --server URL`: the commands of a laptop against a real web process and a real worker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from django.db import connection

from drydock_client.http import HttpClient
from leases.local import LocalClient
from leases.models import Job, Lease
from leases.operations.callers import caller
from leases.rest import tokens
from tests.blueprints.host_peers import eventually
from tests.cli.conftest import ROOT, Cli
from tests.cli.forks import Forks
from tests.rest.attempts import METACHARACTERS
from tests.servers import Server
from tests.settings import DATABASE
from tests.workers import Worker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server(tmp_path, transactional_db):
    with Server.on(str(connection.settings_dict["NAME"]), tmp_path / "web.log") as running:
        yield running


@pytest.fixture
def working(transactional_db):
    worker = Worker({DATABASE: str(connection.settings_dict["NAME"])}, beat=True)
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.stop()


@pytest.fixture
def cli(server, tmp_path):
    """`drydock` of somebody who has a server and nothing else."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "DATABASE", "BROKER"))
    }
    environment = kept | {
        "DRYDOCK_SERVER": server.url, "DRYDOCK_STATE": str(tmp_path / "state"), "HOME": str(tmp_path),
        "DRYDOCK_TOKENS": str(tmp_path / "config" / "tokens.json"),
    }  # fmt: skip
    forks = Forks(environment, ROOT, tmp_path / "forks")
    yield Cli(environment, forks)
    forks.close()
    assert not (tmp_path / "state").exists(), "a private engine was begun"


@pytest.fixture
def host(blueprint):
    """This machine, to be leased."""
    folder = Path(os.environ["DRYDOCK_STATE"]) / "cli-hosts"
    config = {"folder": str(folder), "first_uid": 910_000 + os.getpid() % 1000 * 50, "uids": 50, "cpu_millicores": 4000}
    return blueprint("here", kind="local_host", resource_type="host", config=config)


@pytest.mark.slow
def test_a_laptop_leases_works_and_releases(cli, server, working, host, owner, tmp_path):
    _, secret = tokens.create(caller(owner), name="laptop")
    assert "login" in cli("leases", code=7).stderr
    assert "token is not valid" in cli("login", stdin="ddk_wrong\n", code=7).stderr
    assert f"You are logged in to {server.url} as ada." in cli("login", stdin=f"{secret}\n").stderr
    assert (tmp_path / "config" / "tokens.json").stat().st_mode & 0o077 == 0

    assert cli.json("explain", "host")["outcome"] == "build"
    lease = cli.json("lease", "host", "--keep", "--ttl", "1h", "--name", "mine")["leases"][0]
    number = str(lease["id"])
    assert (lease["state"], lease["owner"]) == ("active", "ada")
    assert [one["name"] for one in cli.json("leases")] == ["mine"]
    assert "mine" in cli("leases").stdout
    assert "lease.active" in cli("show", number).stdout
    assert len(cli("events", "-n", "3", "--json").stdout.splitlines()) == 3
    assert cli.json("resources")[0]["leases"] == [lease["id"]]
    assert cli.json("blueprints")[0]["config"] == {}

    done = cli("run", "-i", number, "--", "sh", "-c", "cat; echo err >&2; exit 9", stdin="given ü\n", code=9)
    assert (done.stdout, done.stderr) == ("given ü\n", "err\n")
    said = cli.json("run", number, "--", "sh", "-c", "echo out; echo err >&2")
    assert (said["stdout"], said["stderr"], said["exit_code"]) == ("out\n", "err\n", 0)
    assert cli("run", number, "--", *METACHARACTERS).stdout == "".join(METACHARACTERS[2:])
    assert "stdin" in cli("run", "-i", number, "--", "cat", stdin="x" * 600_000, code=2).stderr

    (tmp_path / "site" / "deep").mkdir(parents=True)
    (tmp_path / "site" / "deep" / "a b").write_bytes(bytes(range(256)) * 4000)
    cli("cp", str(tmp_path / "site"), f"{number}:")
    cli("cp", f"{number}:site", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "a b").read_bytes() == (tmp_path / "site" / "deep" / "a b").read_bytes()
    cli("run", number, "--", "ln", "-s", "/etc", "out")
    assert cli("cp", f"{number}:out/passwd", str(tmp_path / "stolen"), code=None).returncode != 0
    assert not (tmp_path / "stolen").exists()
    assert "site" in cli("ls", f"{number}:").stdout

    job = cli("job", "start", number, "--", "sh", "-c", "echo slow; exit 3").stdout.strip()
    assert cli("job", "output", "--follow", job, code=3).stdout == "slow\n"
    assert cli.json("job", "show", job)["exit_code"] == 3
    before = cli.json("show", number)["until"]
    assert cli.json("extend", number, "5h")["until"] > before

    made = cli.json("tokens", "create", "ci", "--scope", "read")
    assert cli.also(DRYDOCK_TOKEN=made["token"]).json("leases")[0]["id"] == lease["id"]
    assert {one["name"] for one in cli.json("tokens", "list")} == {"laptop", "ci"}
    cli("tokens", "revoke", str(made["id"]))
    assert "revoked" in cli.also(DRYDOCK_TOKEN=made["token"])("leases", code=7).stderr

    assert cli.json("release", number)["state"] in ("released", "destroyed")
    assert cli("lease", "host", "--", "echo", "briefly").stdout == "briefly\n"
    assert "on this machine" in cli("worker", code=2).stderr
    assert "was deleted" in cli("logout").stderr
    assert json.loads(cli("leases", "--json", code=7).stdout)["error"]["code"] == "not_allowed"


def test_both_clients_run_alike(server, working, host, owner):
    _, secret = tokens.create(caller(owner), name="laptop")
    over, here = HttpClient(server.url, secret), LocalClient(caller(owner))
    lease = here.request({"type": "host"}).id
    assert over.http.get(f"leases/{lease}", {"wait": 30}, wait=30)["state"] == "active"
    for client in (here, over):
        ended = client.run(lease, "cat; echo $X >&2; exit 7", env={"X": "it's"}, stdin=b"in\n")
        assert (ended.stdout, ended.stderr, ended.exit_code, ended.signal) == ("in\n", "it's\n", 7, 0)
        parts = []
        client.run(lease, ["sh", "-c", "echo o; echo e >&2"], on_output=lambda *part, to=parts: to.append(part))
        assert sorted(parts) == [("stderr", b"e\n"), ("stdout", b"o\n")]
        started = client.start_job(lease, ["cat"], stdin=b"\0\xff", apart=True)
        assert started.apart
        assert Job.objects.get(pk=started.id).stdin is None
    eventually(lambda: all(job.ended_at is not None for job in here.jobs(lease=lease)), 30)
    assert here.jobs(lease=lease) == over.jobs(lease=lease)
    over.release(lease)
    over.close()
    assert Lease.objects.get(pk=lease).release_wanted or Lease.objects.get(pk=lease).state != "active"
