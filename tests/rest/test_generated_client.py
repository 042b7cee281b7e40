"""A client that `openapi-python-client` generates of our schema works against a real server."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser

from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.names import operation_id
from tests.rest.test_cli import host, server, working

__all__ = ["host", "server", "working"]

ROOT = Path(__file__).parents[2]
GENERATOR = Path(sys.prefix) / "generator"
VERBS = """
list get create install uninstall update delete set read write start stop send request register change configure
download upload publish approve decline decide confirm check disable drain enable undrain clear explain reboot cancel
extend hold unhold release resize transfer resolve retry adopt destroy reclaim force quarantine unquarantine retire
sweep scan revoke attest attach detach
"""


def schema() -> dict[str, Any]:
    found = Browser().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    return json.loads(found.content)  # type: ignore[no-any-return]


PROGRAM = """
import importlib, io, sys, tarfile, time
from generated_drydock import AuthenticatedClient, models
from generated_drydock.types import File

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)

def call(name, *given, **named):
    module = importlib.import_module("generated_drydock.api.leases." + name)
    answer = module.sync_detailed(*given, client=client, **named)
    assert answer.status_code < 300, answer.content
    return answer.parsed

lease = call("create_lease", body=models.LeaseRequest(type_="host", ttl="10m"))
for _ in range(10):
    if lease.state == "active":
        break
    lease = call("get_lease", lease.id, wait=30)
assert lease.state == "active", lease
archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w") as tar:
    entry = tarfile.TarInfo("hello")
    entry.size = 5
    tar.addfile(entry, io.BytesIO(b"there"))
assert call("upload_lease_tree", lease.id, path="hello", body=File(io.BytesIO(archive.getvalue()))).files == 1
assert call("read_lease_file", lease.id, path="hello").payload.read() == b"there"
with tarfile.open(fileobj=call("download_lease_tree", lease.id, path="hello").payload) as tar:
    (entry,) = tar.getmembers()
    assert tar.extractfile(entry).read() == b"there"
call("release_lease", lease.id)
for _ in range(10):
    lease = call("get_lease", lease.id, wait=30)
    if lease.state == "destroyed":
        break
    time.sleep(1)
assert lease.state == "destroyed", lease
"""


def run(folder: Path, *arguments: str, timeout: int = 200) -> str:
    """Run Python with the generator and what it needs; its output."""
    path = os.pathsep.join([str(GENERATOR), str(folder / "made")])
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.timeout(300)
def test_a_generated_client_leases_copies_and_releases(server, working, host, owner, tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(schema()))
    (tmp_path / "config.yaml").write_text("package_name_override: generated_drydock\npost_hooks: []\n")
    said = run(
        tmp_path, "-m", "openapi_python_client", "generate", "--path", "schema.json", "--config", "config.yaml",
        "--output-path", "made",
    )  # fmt: skip
    # Its other word for media types, `application/x-tar`, it leaves out and says so.
    assert said.count("Endpoint will not be generated") == 0, said
    _, secret = tokens.create(caller(owner), name="generated")
    run(tmp_path, "-c", PROGRAM, server.url, secret)


def test_operations_are_named_by_a_verb_and_the_thing():
    names = [one["operationId"] for path in schema()["paths"].values() for one in path.values()]
    for name in names:
        verb, *rest = name.split("_")
        assert verb in VERBS.split(), name
        assert len(set(rest)) == len(rest), f"{name} stutters"
        assert not name[-1].isdigit(), f"{name} is another's name with a number"
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/api/v1/leases", "list_leases"),
        ("GET", "/api/v1/leases/{id}", "get_lease"),
        ("POST", "/api/v1/leases/{id}/release", "release_lease"),
        ("GET", "leases/<id:id>/jobs", "list_lease_jobs"),
        ("GET", "/api/v1/leases/{id}/access", "get_lease_access"),
        ("PATCH", "/api/v1/blueprints/{name}", "update_blueprint"),
        ("POST", "/api/v1/authorizations/decide", "decide_authorizations"),
        ("GET", "/api/v1/usage/records", "list_usage_records"),
    ],
)
def test_a_name_follows_from_method_and_address(method, path, name):
    assert operation_id(method, path) == name


@pytest.mark.timeout(300)
def test_the_example_of_the_page_waits_until_active_and_releases(server, working, host, owner, tmp_path):
    _, secret = tokens.create(caller(owner), name="page")
    page = (ROOT / "docs/how-to/use-rest.md").read_text()
    begin = page.index("    from drydock_client")
    lines = itertools.takewhile(lambda line: not line or line.startswith("    "), page[begin:].splitlines())
    code = "\n".join(line[4:] for line in lines).replace("https://drydock.example.org", server.url)
    assert "client.wait(" in code
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, cwd=ROOT,
        env={**os.environ, "DRYDOCK_TOKEN": secret, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[-1] == "active"
