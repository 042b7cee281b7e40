"""What a lease of a layered kind on a host over SSH tries so that something of it outlives its cleaning."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from blueprints.answers import Json
from interfaces.ssh.pool import POOL
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.models import Lease, Resource
from tests.blueprints import host_peers as peers
from tests.blueprints.test_layered_ssh_engine import _alone, _nothing_is_left, _open_to_all, _retire_all, host, server
from tests.blueprints.test_working_copy import Upstream
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_alone", "_database", "_quick", "ask", "blueprint", "host", "owner", "server", "soon", "until"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(400, func_only=True), pytest.mark.usefixtures("soon")]

LYING = r"""
IFS= read -r s
mark=$(printf %b "$s" | grep -oE 'drydock-[0-9a-f]{24}' | head -n 1)
printf '%s 1.1.1 ok\n' "$mark"
printf '%s\n' "$mark" >&2
echo 0
exit 0
"""
"""A start-up file of a shell that answers whatever it is told to do with "nothing is left"."""


@pytest.fixture(autouse=True)
def _as_root() -> None:
    peers.needs_root()


def plant(account: Json) -> None:
    """Everything that a login of the account reads, as a lease wrote it while the home was its own."""
    home, uid = Path(account["home"]), account["uid"]
    os.chown(home, uid, uid)
    (home / ".ssh").mkdir(exist_ok=True)
    shutil.chown(home / ".ssh", uid, uid)
    files = {".bashrc": LYING, ".profile": LYING, ".ssh/rc": LYING, ".ssh/environment": "BASH_ENV=~/.bashrc\n"}
    with (home / ".ssh/authorized_keys").open("a") as keys:
        keys.write("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHg9qyQ mine\n")
    for name, text in files.items():
        (home / name).write_text(text)
        shutil.chown(home / name, uid, uid)


def survivors(uid: int) -> list[psutil.Process]:
    """What runs with the uid and is no part of a connection."""
    return [one for one in peers.alive(uid) if not one.name().startswith("sshd")]


def host_facts(host: Resource) -> Json:
    facts: Json = Lease.objects.get(resource_id=host.pk, state="active").facts
    return facts


def test_a_storage_is_cleaned_though_its_accounts_shell_lies(
    host: Resource, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any]
) -> None:
    blueprint("folders", kind="storage", config={"disk_mib": 32, "limit": "checked"})
    lease = until(ask("storage"), seconds=120, state="active")
    account = host_facts(host)
    command: Any = specs.lease_view(lease).interface("command")
    command.check(f"echo secret >secret; {peers.daemon(clean=True)}")
    assert not command.run("touch ../.bashrc || mkdir ../.ssh/x").ok, "the home is not the lease's to write"
    assert survivors(account["uid"])
    plant(account)
    release.release(lease.pk, actor="ada")
    until(lease, seconds=120, state="destroyed")
    assert not survivors(account["uid"])
    POOL.close_idle(0)
    second = until(ask("storage"), seconds=120, state="active")
    assert second.resource_id == lease.resource_id
    command = specs.lease_view(second).interface("command")
    assert command.check("ls -A; pwd").text == f"{second.facts['folder']}\n"
    home = Path(account["home"])
    assert sorted(each.name for each in home.iterdir()) == [".ssh", Path(second.facts["folder"]).name]
    assert [each.name for each in (home / ".ssh").iterdir()] == ["authorized_keys"]
    assert len((home / ".ssh/authorized_keys").read_text().splitlines()) == 1
    release.release(second.pk, actor="ada")
    until(second, seconds=120, state="destroyed")
    POOL.close_idle(0)
    _retire_all()
    _nothing_is_left(account)


def test_a_working_copy_is_new_for_each_lease_though_its_accounts_shell_lies(
    host: Resource, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any], tmp_path: Path
) -> None:
    upstream = Upstream(_open_to_all(tmp_path))
    blueprint("copies", kind="working_copy", config={"protocols": ["file"], "disk_mib": 16})
    wanted = {"repository": upstream.url, "ref": "v1"}
    lease = until(ask("working_copy", requirements=wanted), seconds=120, state="active")
    account, folder = host_facts(host), Path(lease.facts["folder"])
    command: Any = specs.lease_view(lease).interface("command")
    command.check(peers.daemon(clean=True))
    control = Path(f"{folder}.control")
    for where in (control, control / "jobs", control / "git"):
        assert not command.run(["ls", str(where)]).ok, "what the control side has there is not the lease's to see"
        assert not command.run(["mkdir", str(where / "checkout-1")]).ok
    hook = folder / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    plant(account)
    release.release(lease.pk, actor="ada")
    until(lease, seconds=120, state="destroyed")
    assert not survivors(account["uid"])
    POOL.close_idle(0)
    second = until(ask("working_copy", requirements=wanted), seconds=120, state="active")
    assert second.resource_id == lease.resource_id
    assert not hook.exists()
    assert not (tmp_path / "hooked").exists()
    files: Any = specs.lease_view(second).interface("filesystem")
    assert files.read_text("readme") == "readme"
    release.release(second.pk, actor="ada")
    until(second, seconds=120, state="destroyed")
    _retire_all()
    _nothing_is_left(account)


@pytest.mark.parametrize("kind", ["storage", "working_copy"])
def test_a_setuid_program_that_another_lease_keeps_does_not_lead_to_the_next_owner(
    host: Resource, blueprint: Callable[..., Any], ask: Callable[..., Lease], until: Callable[..., Any],
    tmp_path: Path, kind: str,
) -> None:  # fmt: skip
    config: Json = {"disk_mib": 32}
    asked: Json = {}
    if kind == "working_copy":
        config |= {"protocols": ["file"]}
        asked = {"requirements": {"repository": Upstream(_open_to_all(tmp_path)).url, "ref": "v1"}}
    blueprint("things", kind=kind, config=config)
    first = until(ask(kind, **asked), seconds=120, state="active")
    beside = until(ask("host"), seconds=120, state="active")
    thing, accomplice = (specs.lease_view(each).interface("command") for each in (first, beside))
    kept = f"{beside.facts['home']}/open"
    accomplice.check(f"chmod 755 ~ && mkdir -m 777 {kept}")
    thing.check(f"cp /bin/bash {kept}/became && chmod 4755 {kept}/became")
    accomplice.check(f"nohup sh -c 'exec 7<{kept}/became; sleep 600' >/dev/null 2>&1 & sleep 1")
    became = f"{kept}/became -p -c 'id -u'"
    assert accomplice.check(became).text != accomplice.check("id -u").text, "nothing was planted"
    release.release(first.pk, actor="ada")
    until(first, seconds=120, state="destroyed")
    second = until(ask(kind, **asked), seconds=120, state="active")
    assert second.resource_id == first.resource_id, "the warm one is used again"
    command: Any = specs.lease_view(second).interface("command")
    owner_now = command.check("id -u").text
    by_descriptor = "for p in $(pgrep -U $(id -u)); do [ ! -e /proc/$p/fd/7 ] || /proc/$p/fd/7 -p -c 'id -u'; done"
    assert accomplice.check(became).text != owner_now
    assert owner_now not in accomplice.check(by_descriptor).text.splitlines(keepends=True)
    assert command.check("echo mine >mine && cat mine").text == "mine\n"
    for lease in (second, beside):
        release.release(lease.pk, actor="ada")
        until(lease, seconds=120, state="destroyed")
    _retire_all()
    assert not Path(kept).exists()
