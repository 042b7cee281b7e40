"""`drydock hosts` against the engine of this process: register, import, act on hosts, and show erasure records."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from drydock.cli.program import app
from drydock.cli.toolkit import options
from drydock.core import clock
from drydock_client.values import to_json
from interfaces.keys import new_key_pair
from leases import erasures
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event, Resource, ResourceCredential, ResourceIdentity
from leases.operations import credentials, leases, resources
from leases.operations.callers import caller
from tests.leases import kinds
from tests.leases.test_erasures import Shredded

KEY = new_key_pair().public
HEAD = "name,address,host_keys,bmc.driver,bmc.address,serial,attributes.rack,credential.username,credential.password"


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def drydock(operator, monkeypatch):
    """Run the program in this process, as an operator or as another caller."""

    def run(*words: object, code: int = 0, who=operator, stdin: str = "") -> str:
        monkeypatch.setattr(options, "client", lambda *_: LocalClient(who))
        done = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def rack(operator, blueprint):
    credentials.add(operator, "hosts", {"private_key": new_key_pair().private})
    return blueprint("rack", kind="bare_metal", resource_type="host", config={"credential": "hosts"})


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "hosts.csv"
        path.write_text("\n".join((HEAD, *lines)))
        return path

    return write


def line(number, *, name="", bmc="", serial="", password="s3cret-word"):
    return (
        f"{name or f'node-{number}'},10.0.0.{number},{KEY},redfish,{bmc or f'10.0.1.{number}'},{serial},R7,"
        f"drydock,{password}"
    )


def test_a_file_is_checked_first_and_then_imported_row_by_row(drydock, rack, file):
    path = file(line(1), line(2, bmc="https://10.0.1.2"), line(3, serial="N/A"), line(4, bmc="10.0.1.1"), line(5))
    said = drydock("hosts", "import", path, "--blueprint", "rack", "--dry-run", code=1)
    assert not Resource.objects.exists()
    assert not Event.objects.filter(kind="resource.pending").exists()
    assert "3 of 5 hosts cannot be registered" in said
    assert said.count("would be registered") == 2
    assert "line 3  node-2" in said
    assert "without https:// and without a path" in said
    assert "'N/A' is a placeholder" in said
    assert "line 2 (node-1) has the same BMC" in said

    said = drydock("hosts", "import", path, "--blueprint", "rack", "attributes.position=3", code=1)
    assert sorted(Resource.objects.values_list("name", flat=True)) == ["node-1", "node-5"]
    one = Resource.objects.get(name="node-1")
    assert one.attributes | {"rack": "R7", "position": "3"} == one.attributes
    assert ResourceCredential.objects.get(resource=one).secrets == {"username": "drydock", "password": "s3cret-word"}
    assert f"resource {one.pk}" in said
    assert "s3cret-word" not in said

    said = drydock("hosts", "import", path, "--blueprint", "rack", code=1)
    assert "5 of 5 hosts were not registered" in said
    assert "is already" in said
    assert Resource.objects.count() == 2


def test_an_import_says_what_it_did_as_json_without_secrets(drydock, rack, file):
    found = drydock("hosts", "import", file(line(1)), "--blueprint", "rack", "--json")
    (one,) = json.loads(found)
    assert (one["name"], one["problem"], one["resource"]) == ("node-1", "", Resource.objects.get().pk)
    assert one["registration"]["credential"] == ["password", "username"]
    assert "s3cret-word" not in found


@pytest.mark.parametrize("same", [{"bmc": "10.0.1.1"}, {"bmc": "10.0.1.9"}])
def test_a_bmc_or_an_address_that_is_registered_already_is_refused(drydock, rack, file, same, blueprint, operator):
    blueprint("other", kind="bare_metal", resource_type="host", config={"credential": "hosts"})
    drydock("hosts", "import", file(line(1)), "--blueprint", "rack")
    number, where = (2, "other") if same["bmc"] == "10.0.1.1" else (1, "rack")
    said = drydock("hosts", "import", file(line(number, name="again", **same)), "--blueprint", where, code=1)
    expected = "which has the same bmc" if number == 2 else "is already registered"
    assert expected in said
    assert Resource.objects.count() == 1


def test_owners_do_not_see_the_address_of_a_bmc(drydock, rack, file, owner, ask, operator):
    drydock("hosts", "import", file(line(1)), "--blueprint", "rack")
    resource = Resource.objects.get()
    lease = ask("host", by=owner)
    assert (lease.state, lease.resource_id) == ("acquired", resource.pk)
    ResourceIdentity.objects.create(resource=resource, namespace="dmi_uuid", value="4c4c4544")
    assert resources.get(caller(owner), resource.pk).identities == ("dmi_uuid 4c4c4544",)
    assert "bmc redfish 10.0.1.1:443" in resources.get(operator, resource.pk).identities


def test_a_host_is_registered_with_nested_fields_and_secrets_from_elsewhere(drydock, rack, tmp_path):
    (tmp_path / "password").write_text("s3cret-word\n")
    fields = ("address=10.0.0.1", f"host_keys={KEY}", "bmc.driver=ipmi", "bmc.address=10.0.1.1")
    said = drydock("hosts", "register", "rack", *fields, "credential.password=x", code=2)
    assert "Do not give a secret on the command line" in said
    assert "Give the fields" in drydock("hosts", "register", "rack", code=2)
    assert "bmc.driver" in drydock("hosts", "register", "rack", "bmc.driver=telepathy", code=2)
    said = drydock("hosts", "register", "rack", *fields, "--dry-run")
    assert "10.0.0.1 can be registered as 10.0.0.1:22" in said
    assert not Resource.objects.exists()
    drydock("hosts", "register", "rack", *fields, "--credential", f"password=@{tmp_path / 'password'}")
    row = Resource.objects.get()
    assert row.registration["bmc"] == {"driver": "ipmi", "address": "10.0.1.1"}
    assert row.credential_fields == ["password"]
    listed = drydock("hosts")
    assert "enrolling" in listed


def test_only_operators_register_and_check(drydock, rack, file, owner):
    path = file(line(1))
    for more in ((), ("--dry-run",)):
        drydock("hosts", "import", path, "--blueprint", "rack", *more, code=7, who=caller(owner))
    assert not Resource.objects.exists()
    drydock("hosts", "import", path, "--blueprint", "nowhere", code=3)


@pytest.fixture
def shredded(blueprint, operator, until):
    kind = Shredded()
    with kinds.installed(kind):
        blueprint("pool", kind="shredded", max_resources=1)
        until(Resource.objects.get(pk=resources.register(operator, "pool", {"name": "r1"}).id), state="active")
        yield kind


def test_a_host_is_erased_by_name_after_a_confirmation(drydock, shredded, monkeypatch):
    drydock("hosts", "erase", "r1", stdin="n\n", code=1)
    settle()
    assert erasures.erasures(caller("root")) == []
    said = drydock("hosts", "erase", "r1", "--yes", "--no-wait")
    assert "erase was requested" in said
    settle()
    assert [one.disk for one in erasures.erasures(caller("root"))] == ["sda", "sdb"]


@pytest.mark.parametrize(
    ("words", "act"), [(("rescue",), "rescue"), (("rescue", "--end"), "unrescue"), (("inspect",), "inspect")]
)
def test_a_host_without_an_act_says_what_it_offers(drydock, shredded, words, act):
    command, *more = words
    said = drydock("hosts", command, "r1", *more, code=2)
    assert f"r1 of kind 'shredded' does not offer the act '{act}'. It offers: erase." in said.replace("\n", " ")


def test_power_is_requested(drydock, shredded):
    assert "r1: power off was requested" in drydock("hosts", "power", "r1", "off")
    assert Resource.objects.get(name="r1").power_wanted == "off"
    drydock("hosts", "power", "r1", "sideways", code=2)


@pytest.fixture
def recorded(shredded, ask, owner, until):
    lease = until(ask("shredded"), state="active")
    leases.release(caller(owner), lease.pk)
    return until(lease, state="destroyed")


def test_records_are_exported(drydock, recorded, operator, owner, monkeypatch):
    monkeypatch.setattr("drydock.cli.hosts.commands._PAGE", 1)
    expected = erasures.erasures(operator)
    assert json.loads(drydock("hosts", "records", "--json")) == to_json(expected)
    assert [json.loads(one) for one in drydock("hosts", "records", "--jsonl").splitlines()] == to_json(expected)
    rows = list(csv.DictReader(io.StringIO(drydock("hosts", "records", "--csv"))))
    assert [(row["disk"], row["serial"], row["verified"], row["owner"]) for row in rows] == [
        ("sda", "S1", "True", "ada"),
        ("sdb", "S2", "True", "ada"),
    ]
    assert "S1" in drydock(
        "hosts", "records", "--host", "r1", "--lease", recorded.pk, "--serial", "S1", who=caller(owner)
    )
    assert "No disk was erased." in drydock("hosts", "records", "--unproven")
    assert "No disk was erased." in drydock("hosts", "records", "--since", "2030-01-01T00:00")
    assert "S2" in drydock("hosts", "records", "--since", "1h")
    assert "not a valid time" in drydock("hosts", "records", "--since", "soon", code=2)
    assert "Choose one of" in drydock("hosts", "records", "--csv", "--json", code=2)
    assert clock.now() > expected[0].recorded_at


def test_a_formula_in_a_serial_number_is_harmless_in_a_spreadsheet(drydock, shredded, ask, owner, until):
    from dataclasses import replace

    shredded.reported = (replace(Shredded.reported[0], serial="=cmd()"),)
    lease = until(ask("shredded"), state="active")
    leases.release(caller(owner), lease.pk)
    until(lease, state="destroyed")
    assert ",'=cmd()," in drydock("hosts", "records", "--csv")
