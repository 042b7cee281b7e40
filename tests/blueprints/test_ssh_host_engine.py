"""Registered hosts through the engine: real SSH servers that die, come back and change."""

from __future__ import annotations

import getpass
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from blueprints.models import Blueprint, Credential
from drydock.core.errors import Conflict, NotFound
from drydock_client.values import BlueprintChange
from interfaces.command.shell import ShellCommand
from interfaces.endpoints import endpoint_from_json
from interfaces.errors import AuthenticationRefused
from interfaces.keys import new_key_pair
from interfaces.ssh.pool import POOL
from interfaces.transports import transport_to
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import attention, blueprints, interfaces, leases, resources
from leases.operations.callers import Caller, caller
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "until"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(300, func_only=True), pytest.mark.usefixtures("soon")]
LONG_AGO = "2020-01-01T00:00Z"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    with peers.server(f"127.9.2.{WORKER + 1}") as one, peers.server(f"127.9.2.{WORKER + 101}") as two:
        yield one, two


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    peers.needs_root()
    with peers.unchanged_accounts():
        yield


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def lab(servers: tuple[Server, Server], blueprint: Callable[..., Blueprint], operator: Caller) -> Callable[..., Any]:
    """Register hosts of a blueprint whose credential opens both servers."""
    for server in servers:
        (server.folder / "control").write_text(servers[0].control.public + "\n")
    Credential.objects.create(name="control", secrets={"private_key": servers[0].control.private})
    config = {"credential": "control", "min_free_mib": 1, "connect_timeout": 2}
    blueprint("lab", kind="ssh_host", resource_type="host", config=config)

    def register(server: Server, name: str, **more: Any) -> Resource:
        made = resources.register(operator, "lab", {**server.registration(), "name": name, "slots": 2, **more})
        return Resource.objects.get(pk=made.id)

    return register


def retire(operator: Caller, *hosts: Resource) -> None:
    for host in hosts:
        resources.retire(operator, host.pk)
    settle()


def check_now(host: Resource) -> None:
    Resource.objects.filter(pk=host.pk).update(check_at=LONG_AGO)
    settle()
    host.refresh_from_db()


@pytest.mark.parametrize("how", ["dead", "hanging"])
def test_a_lease_is_served_by_the_other_host_when_one_does_not_answer(servers, lab, ask, until, operator, how):
    alpha, beta = (
        until(lab(server, name), state="active") for server, name in zip(servers, ("alpha", "beta"), strict=True)
    )
    # Whatever connection there was went with the host.
    POOL.close_idle(0)
    if how == "dead":
        servers[0].stop()
    else:
        servers[0].popen.send_signal(signal.SIGSTOP)
    try:
        lease = until(ask("host"), state="active")
        assert lease.resource_id == beta.pk
        alpha.refresh_from_db()
        assert alpha.suspect_since is not None
        assert [one.what for one in attention.needed(operator) if one.id == alpha.pk] == ["unreachable"]
        assert until(ask("host"), state="active").resource_id == beta.pk
    finally:
        if how == "dead":
            servers[0].again()
        else:
            servers[0].popen.send_signal(signal.SIGCONT)
    check_now(alpha)
    until(alpha, suspect_since=None, in_maintenance=False)
    assert until(ask("host"), state="active").resource_id == alpha.pk
    for each in Lease.objects.filter(state="active"):
        release.release(each.pk, actor="ada")
        until(each, state="destroyed")
    retire(operator, alpha, beta)


def test_a_host_whose_key_has_changed_is_given_to_nobody(servers, lab, ask, until, operator):
    alpha = until(lab(servers[0], "alpha"), state="active")
    Resource.objects.filter(pk=alpha.pk).update(facts={**alpha.facts, "host_keys": [servers[1].host.public]})
    POOL.close_idle(0)
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    alpha.refresh_from_db()
    assert lease.state == "pending"
    assert "a key that is not the pinned one" in alpha.message
    assert alpha.suspect_since is not None
    assert getpass.getuser() == alpha.facts["user"]
    Resource.objects.filter(pk=alpha.pk).update(facts=alpha.facts | {"host_keys": [servers[0].host.public]})
    release.release(lease.pk, actor="ada")
    check_now(alpha)
    until(alpha, suspect_since=None, in_maintenance=False)
    retire(operator, alpha)


def test_a_host_that_fails_its_first_check_stays_and_can_be_corrected(servers, lab, ask, until, operator):
    wrong = {"port": 1, "host_keys": [servers[1].host.public]}
    alpha = lab(servers[0], "alpha", **wrong)
    settle()
    alpha.refresh_from_db()
    assert (alpha.state, alpha.gone_at) == ("pending", None)
    assert "connection refused (" in alpha.message
    assert ":1)" in alpha.message
    said = [(one.what, one.message) for one in attention.needed(operator) if one.id == alpha.pk]
    assert said == [("first_check", alpha.message)]
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.resource_id) == ("pending", None)
    resources.change_registration(operator, alpha.pk, {"port": servers[0].port})
    settle()
    alpha.refresh_from_db()
    assert "a key that is not the pinned one" in alpha.message
    resources.change_registration(operator, alpha.pk, {"host_keys": [servers[0].host.public]})
    until(alpha, state="active", suspect_since=None, message="")
    assert until(lease, state="active").resource_id == alpha.pk
    with pytest.raises(Conflict, match="held by leases"):
        resources.change_registration(operator, alpha.pk, {"port": servers[1].port})
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    retire(operator, alpha)
    until(alpha, state="destroyed")


def test_a_host_that_moved_is_corrected_and_checked_before_it_serves(servers, lab, ask, until, operator):
    alpha = until(lab(servers[0], "alpha", traits=["old"]), state="active")
    moved = {"address": servers[1].address, "port": servers[1].port, "traits": ["new"], "slots": 3}
    resources.change_registration(operator, alpha.pk, moved)
    settle()
    alpha.refresh_from_db()
    assert alpha.suspect_since is not None, "the key there is another one"
    lease = ask("host")
    settle()
    lease.refresh_from_db()
    assert lease.state == "pending"
    resources.change_registration(operator, alpha.pk, {"host_keys": [servers[1].host.public]})
    until(alpha, suspect_since=None, in_maintenance=False)
    assert (alpha.total_slots, alpha.traits, alpha.facts["port"]) == (3, ["new"], servers[1].port)
    assert alpha.identity == f"{servers[1].address}:{servers[1].port}"
    lease = until(lease, state="active")
    assert f"-p {servers[1].port} " in lease.facts["connect"]
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    retire(operator, alpha)


def test_registered_hosts_follow_a_changed_blueprint(servers, lab, ask, until, operator):
    alpha, beta = (lab(server, name, slots=None) for server, name in zip(servers, ("alpha", "beta"), strict=True))
    for host in (alpha, beta):
        until(host, state="active")
    held = until(ask("host"), state="active")
    held_by, free = (alpha, beta) if held.resource_id == alpha.pk else (beta, alpha)
    config = {"accounts": "shared", "trusted": True, "min_free_mib": 2}
    blueprints.change(operator, "lab", BlueprintChange(config={**Blueprint.objects.get().config, **config}))
    until(free, generation=2, in_maintenance=False)
    assert (free.total_slots, free.attributes["isolation"]) == (1, "machine")
    held_by.refresh_from_db()
    assert (held_by.generation, held_by.total_slots, held_by.claimable) == (1, 8, False)
    held.refresh_from_db()
    assert held.state == "active"
    release.release(held.pk, actor="ada")
    until(held, state="destroyed")
    assert not peers.accounts(held.facts["user"]), "its account goes as it was made"
    until(held_by, generation=2, in_maintenance=False, quarantined=False)
    retire(operator, alpha, beta)


def test_a_host_that_cannot_follow_its_blueprint_says_why_and_stays(servers, lab, until, operator):
    alpha = until(lab(servers[0], "alpha"), state="active")
    changed = {**Blueprint.objects.get().config, "homes": "/nowhere-at-all"}
    blueprints.change(operator, "lab", BlueprintChange(config=changed))
    until(alpha, observed="failing")
    assert "The host lacks: /nowhere-at-all" in alpha.message
    assert (alpha.state, alpha.drained, alpha.generation) == ("active", False, 1)
    assert [one.what for one in attention.needed(operator) if one.id == alpha.pk] == ["sick"]
    blueprints.change(operator, "lab", BlueprintChange(config={**changed, "homes": "/home"}))
    until(alpha, generation=3, suspect_since=None, in_maintenance=False, message="")
    retire(operator, alpha)


def happened(lease: Lease, kind: str) -> bool:
    """Whether a lease has such an event, after one more sweep."""
    settle()
    return bool(Event.objects.filter(lease=lease, kind=kind).exists())


def way(lease: Lease) -> ShellCommand:
    """Commands as whoever has the present key of a lease gives them."""
    there = transport_to(endpoint_from_json(lease.facts["endpoint"]), private_key=lease.secrets["private_key"])
    return ShellCommand(there, still_mine=lambda: None)


def test_the_keys_of_a_former_owner_stop_working_and_the_files_stay(servers, lab, ask, owner, until, operator):
    alpha = until(lab(servers[0], "alpha"), state="active")
    mine = new_key_pair("ada")
    lease = until(ask("host", public_keys=[mine.public]), state="active")
    Group.objects.create(name="team").user_set.add(owner, User.objects.create_user("bob"))
    before, uid, generated = way(lease), lease.facts["uid"], lease.secrets["private_key"]
    before.check(["sh", "-c", "echo kept >file; echo again >>.ssh/authorized_keys"], timeout=10)
    before.check(["sh", "-c", "cp .ssh/authorized_keys .ssh/authorized_keys2; echo mine >.ssh/id_ada"], timeout=10)
    before.check(
        ["sh", "-c", "for at in . /tmp; do cp /bin/true $at/as-$(id -u); chmod 6755 $at/as-*; done"], timeout=10
    )
    before.check(["sh", "-c", "chmod 777 ."], timeout=10)
    before.check(["sh", "-c", peers.daemon()], timeout=10)
    assert peers.alive(uid)
    leases.transfer(caller(owner), lease.pk, to="bob")
    with pytest.raises(NotFound):
        interfaces.run_command(caller(owner), lease.pk, ["true"])
    peers.eventually(lambda: happened(lease, "lease.keys_replaced"), 60)
    lease.refresh_from_db()
    assert (lease.state, lease.facts["uid"], lease.public_keys) == ("active", uid, [])
    POOL.close_idle(0)
    peers.eventually(lambda: not peers.alive(uid))
    endpoint = endpoint_from_json(lease.facts["endpoint"])
    for key in (mine.private, generated):
        with pytest.raises(AuthenticationRefused):
            ShellCommand(transport_to(endpoint, private_key=key), still_mine=lambda: None).check(["true"], timeout=10)
    assert interfaces.read_file(caller("bob"), lease.pk, "file") == b"kept\n"
    assert way(lease).check(["cat", ".ssh/authorized_keys"], timeout=10).stdout.count(b"ssh-") == 1
    assert way(lease).check(["ls", ".ssh"], timeout=10).stdout == b"authorized_keys\n"
    modes = way(lease).check(["stat", "-c", "%a", ".", f"as-{uid}"], timeout=10).stdout.split()
    assert modes == [b"700", b"755"]
    assert not Path(f"/tmp/as-{uid}").exists()
    release.release(lease.pk, actor="bob")
    until(lease, state="destroyed")
    retire(operator, alpha)


def test_a_lease_whose_keys_cannot_be_replaced_ends(servers, lab, ask, owner, until, operator):
    alpha = until(lab(servers[0], "alpha"), state="active")
    lease = until(ask("host"), state="active")
    Group.objects.create(name="team").user_set.add(owner, User.objects.create_user("bob"))
    facts = dict(alpha.facts)
    Resource.objects.filter(pk=alpha.pk).update(facts={**facts, "host_keys": [servers[1].host.public]})
    POOL.close_idle(0)
    leases.transfer(caller(owner), lease.pk, to="bob")
    peers.eventually(lambda: happened(lease, "lease.transfer_failed"), 60)
    Resource.objects.filter(pk=alpha.pk).update(facts=facts)
    check_now(alpha)
    until(alpha, suspect_since=None, in_maintenance=False)
    until(lease, state="destroyed", seconds=60)
    retire(operator, alpha)
