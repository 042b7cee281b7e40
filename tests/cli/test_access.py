"""Credentials, authorizations, quotas and what needs attention, from the shell."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import pwd
import subprocess

import pytest

SECRET = "very-secret-c0ffee"


@pytest.fixture
def credential(cli):
    """The name of a credential that is not there before and after."""
    name = "lab"
    yield name
    cli("credentials", "remove", name, code=None)


def test_a_secret_comes_from_a_file_or_standard_input_and_is_never_said_again(cli, credential, tmp_path):
    (tmp_path / "key").write_text(f"-----BEGIN-----\n{SECRET}\n-----END-----\n")
    added = cli.json("credentials", "add", credential, f"private_key=@{tmp_path}/key", "--note", "of the lab")
    assert (added["name"], added["fields"], added["note"]) == (credential, ["private_key"], "of the lab")
    said = "".join(cli("credentials", *words).stdout for words in (("show", credential), (), ("--json",)))
    assert SECRET not in said + json.dumps(added)
    replaced = cli.json("credentials", "replace", credential, "token=-", stdin=f"{SECRET}\n")
    assert replaced["fields"] == ["token"]
    document = json.dumps({"user": "ada", "password": SECRET})
    assert cli.json("credentials", "replace", credential, "-f", "-", stdin=document)["fields"] == ["password", "user"]
    assert SECRET not in cli("events", "--kind", "credential").stdout
    cli("credentials", "add", credential, "token=-", stdin="x", code=4)


def test_a_secret_on_the_command_line_is_refused_and_not_repeated(cli, credential):
    refused = cli("credentials", "add", credential, f"token={SECRET}", code=2)
    assert "token=@FILE" in refused.stderr
    assert SECRET not in refused.stdout + refused.stderr
    for words in (("token",), ("token=-", "-f", "-"), (), ("token=@/nowhere",)):
        cli("credentials", "add", credential, *words, stdin="{}", code=2)
    cli("credentials", "show", credential, code=3)


def test_at_a_terminal_it_is_asked_for_and_not_echoed(cli, credential):
    ours, theirs = pty.openpty()
    asked = subprocess.Popen(
        cli._command(["credentials", "add", credential, "token", "--json"]), env=cli.environment, stdin=theirs,
        stdout=subprocess.PIPE, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"token: " not in shown:  # the blank is written once echo is off
        shown += os.read(ours, 1000)
    os.write(ours, f"{SECRET}\n".encode())
    out, _ = asked.communicate(timeout=90)
    assert asked.returncode == 0
    assert json.loads(out)["fields"] == ["token"]
    os.set_blocking(ours, False)
    with contextlib.suppress(OSError):
        shown += os.read(ours, 1000)
    os.close(ours)
    assert SECRET.encode() not in shown


def test_one_that_a_blueprint_names_stays(cli, credential):
    cli("credentials", "add", credential, "private_key=-", stdin="x")
    cli("blueprints", "add", "lab-hosts", "ssh_host", f"credential={credential}", "--disabled")
    assert "while these blueprints use it: lab-hosts" in cli("credentials", "remove", credential, code=4).stderr
    assert cli.json("credentials", "show", credential)["used_by"] == ["lab-hosts"]
    cli("blueprints", "remove", "lab-hosts")


def test_authorizations_are_asked_for_allowed_by_number_and_declined(cli, fakes):
    pool = fakes()
    (mine,) = cli.json("authorizations", "list", "--blueprint", pool)
    declined = cli.json("authorizations", "decline", str(mine["id"]), "-m", "not now")
    assert (declined[0]["state"], declined[0]["note"]) == ("declined", "not now")
    assert cli.json("authorizations", "ask", pool)[0]["state"] == "declined"
    explained = cli("explain", "fake", "--blueprint", pool, code=None).stdout
    assert f"you are not authorized to use it; request that with: drydock authorizations ask {pool}" in explained
    assert cli.json("authorizations", "allow", str(mine["id"]))[0]["state"] == "authorized"
    assert cli.json("authorizations", "decline", pool, "--user", mine["user"])[0]["id"] == mine["id"]
    cli("authorizations", "allow", pool, code=2)
    cli("authorizations", "allow", "999999", code=3)
    cli("authorizations", "allow", pool, "--group", "nobody", code=3)
    assert pool in cli("authorizations").stdout


def test_quotas_are_set_listed_and_lifted(cli):
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert cli.json("quotas") == []
    quota = cli.json("quotas", "set", "--user", me, "leases=50", "ram=64GiB", "vcpus=1.5")[0]
    assert (quota["max_leases"], quota["max_ram_mib"], quota["max_cpu_millicores"]) == (50, 65536, 1500)
    assert cli.json("quotas", "set", "--user", me, "leases=none")[0]["max_leases"] is None
    assert [found["user"] for found in cli.json("quotas")] == [me]
    quota = cli.json("quotas", "set", "--user", me, "extra.gpu=4", "extra.fpga=1")[0]
    assert quota["max_extra"] == {"gpu": 4, "fpga": 1}
    assert "fpga=1, gpu=4" in cli("quotas").stdout
    assert cli.json("quotas", "set", "--user", me, "extra.fpga=none")[0]["max_extra"] == {"gpu": 4}
    quota = cli.json("quotas", "set", "--user", me, "ttl=30d", "default-ttl=8h")[0]
    assert (quota["max_ttl"], quota["default_ttl"]) == (30 * 86400, 8 * 3600)
    assert "30 d" in cli("quotas").stdout
    assert "'soon' is not a valid duration" in cli("quotas", "set", "--user", me, "ttl=soon", code=2).stderr
    assert cli.json("quotas", "set", "--user", me, "ttl=none", "default-ttl=none")[0]["max_ttl"] is None
    assert "Limit 'boats' does not exist" in cli("quotas", "set", "--user", me, "boats=1", code=2).stderr
    cli("quotas", "set", "leases=1", code=2)
    cli("quotas", "remove", "--user", me)
    assert cli.json("quotas", "list") == []
    cli("quotas", "remove", "--user", me, code=3)


def test_what_needs_attention_is_said_with_what_to_do(cli, fakes):
    pool = fakes()
    registered = cli.json("resources", "register", pool, "name=shaky")
    cli("sweep")
    resource = registered["id"]
    cli("resources", "quarantine", str(resource), "odd noises")
    found = [one for one in cli.json("attention") if one["kind"] == "resource" and one["id"] == resource]
    assert [(one["what"], one["message"]) for one in found] == [("quarantined", "odd noises")]
    told = cli("attention", "--exit-code", code=1).stdout
    assert f"drydock resources unquarantine {resource}" in told
    cli(*found[0]["mend"].split()[1:])
    assert not [one for one in cli.json("attention") if one["id"] == resource]


def test_a_blueprint_is_removed_once_all_of_it_is_gone(cli, fakes):
    pool = fakes()
    cli("lease", "fake", "--blueprint", pool, "--", "true")
    refused = cli("blueprints", "remove", pool, code=4).stderr
    assert f"{pool} is needed by resource " in refused
    assert f"drydock blueprints drain {pool}" in refused
    cli("reclaim", "--blueprint", pool)
    cli("blueprints", "remove", pool)
    cli("blueprints", "show", pool, code=3)
    assert cli.json("resources", "list", "--gone", "--blueprint", pool)


def test_users_are_added_given_passwords_grouped_and_disabled(cli):
    """Also that of `make up`: after these commands there is an administrator, and somebody can sign in."""
    added = cli("users", "add", "grace", "--group", "yard")
    assert len(added.stdout.strip()) >= 12
    assert "shown only once" in added.stderr
    assert cli("users", "add", "grace", code=4).stdout == ""
    assert cli.json("users", "password", "grace", "--stdin", stdin="a phrase of four words\n")["password"] == ""
    cli("users", "password", "grace", "--stdin", code=2, stdin="12345678\n")
    assert cli.json("users", "groups", "grace", "--add", "dock", "--remove", "yard")[0]["groups"] == ["dock"]
    assert "disabled" in cli("users", "disable", "grace").stdout
    cli.also(DRYDOCK_USER="grace")("leases", code=7)
    cli("users", "enable", "grace")
    cli.also(DRYDOCK_USER="grace")("leases")
    cli.also(DRYDOCK_USER="grace")("users", "list", code=7)
    me = {one["name"]: one for one in cli.json("users")}[pwd.getpwuid(os.geteuid()).pw_name]
    assert (me["administrator"], me["password"]) == (True, False)
