"""A host over SSH is registered, looked at and given up by the shell alone."""

from __future__ import annotations

import getpass

import pytest

from tests.interfaces.sshd import own_address, start_sshd
from tests.peers import require


@pytest.fixture
def sshd():
    require("sshd")
    found = start_sshd(own_address(7))
    yield found
    found.stop()


def test_a_stranger_registers_a_host_with_nothing_but_the_shell(cli, sshd):
    cli("credentials", "add", "hosts-key", "private_key=-", stdin=sshd.user.private)
    cli("blueprints", "add", "by-ssh", "ssh_host", "credential=hosts-key", "accounts=shared", "trusted=true")
    place = (f"address={sshd.address}", f"port={sshd.port}", f"user={getpass.getuser()}")
    told = cli("resources", "register", "by-ssh", *place, "host_keys=nonsense", code=2).stderr
    assert "host_keys" in told
    keys = f"host_keys={sshd.host.public}\n"
    resource = str(cli.json("resources", "register", "by-ssh", *place, keys)["id"])
    cli("sweep")
    assert cli.json("resources", "show", resource)["state"] == "active"
    assert cli.json("explain", "host", "--blueprint", "by-ssh", "--exclusive")["outcome"] == "granted"
    assert sshd.user.private.splitlines()[1] not in cli("resources", "show", resource, "--json").stdout

    assert "is needed by resource" in cli("blueprints", "remove", "by-ssh", code=4).stderr
    cli("resources", "destroy", resource)
    cli("sweep")
    cli("blueprints", "remove", "by-ssh")
    cli("credentials", "remove", "hosts-key")


def test_a_host_registered_wrongly_stays_and_is_corrected_by_name(cli, sshd):
    cli("credentials", "add", "wrong-key", "private_key=-", stdin=sshd.user.private)
    cli("blueprints", "add", "by-hand", "ssh_host", "credential=wrong-key", "accounts=shared", "trusted=true")
    fields = (f"address={sshd.address}", "port=1", f"user={getpass.getuser()}", f"host_keys={sshd.host.public}\n")
    cli("resources", "register", "by-hand", "name=rack-7", *fields)
    cli("sweep")
    (listed,) = cli.json("resources", "list", "--blueprint", "by-hand")
    assert (listed["state"], listed["name"]) == ("pending", "rack-7")
    assert f"connection refused ({sshd.address}:1)" in listed["message"]
    assert "suspect" in cli("resources", "list", "--blueprint", "by-hand").stdout
    assert "first_check" in cli("attention").stdout
    assert "rack-8" in cli("resources", "change", "rack-8", "port=2", code=None).stderr
    cli("resources", "change", "rack-7", code=2)
    told = cli("resources", "change", "rack-7", "host_keys=nonsense", code=2).stderr
    assert "host_keys" in told
    assert "is checked before it is leased again" in cli("resources", "change", "rack-7", f"port={sshd.port}").stdout
    cli("sweep")
    assert cli.json("resources", "show", "rack-7")["state"] == "active"
    cli("resources", "remove", "rack-7")
    cli("sweep")
    assert cli.json("resources", "list", "--blueprint", "by-hand") == []
    cli("blueprints", "remove", "by-hand")
    cli("credentials", "remove", "wrong-key")
