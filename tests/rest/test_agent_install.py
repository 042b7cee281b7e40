"""The agent is installed on hosts over SSH: a real sshd, a real account, and a real web process that it joins.

No systemd runs here. The unit is checked by systemd's own programs (tests/operation/test_deploy.py), not started.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import subprocess
import threading
from pathlib import Path

import pytest
from django.db.models.functions import Now

from blueprints.models import Credential
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotAllowed, NotFound
from drydock_agent.package import Package
from leases import agents
from leases.agents import installation, program
from leases.models import Agent, Event, JoinCode, Resource, SlotLock
from leases.operations import resources
from leases.operations.callers import caller
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER
from tests.client.test_tls import certificate
from tests.rest.test_agent_program import server  # noqa: F401
from tests.rest.test_agent_upgrade import remade

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("soon")]


@pytest.fixture
def layout(monkeypatch, tmp_path_factory):
    """Install under names of this process, so that tests at the same time do not meet."""
    peers.needs_root()
    peers.require("runuser", "useradd", "userdel")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("the hosts of agents have Python in /usr/bin")
    name = f"ddagent{os.getpid()}"
    made = installation.Layout(account=name, folder=f"/var/lib/{name}")
    monkeypatch.setattr(installation, "LAYOUT", made)
    yield made
    subprocess.run(["pkill", "-KILL", "-u", name], check=False) if known(name) else None
    subprocess.run(["rm", "-rf", "--", made.folder], check=False)
    if known(name):
        subprocess.run(["userdel", name], check=False)


@contextlib.contextmanager
def arguments():
    """Collect the arguments of all processes while the block runs."""
    seen, over = set(), threading.Event()

    def collect():
        while not over.wait(0.002):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(path.read_bytes())

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def authority(folder: Path) -> tuple[str, str]:
    """Return a certificate in PEM, and its key."""
    certificate_of, _, key = certificate(folder, "authority", "127.0.0.1").read_text().partition("-----BEGIN PRIVATE")
    return certificate_of, f"-----BEGIN PRIVATE{key}"


def known(account: str) -> bool:
    return account in {entry.pw_name for entry in pwd.getpwall()}


@pytest.fixture
def who(chief):
    return caller(chief)


@pytest.fixture
def host(blueprint, until, who):
    """Return a host that is reached over SSH, with a blueprint for its devices."""
    peers.needs_root()
    with peers.server(f"127.9.3.{WORKER + 1}") as sshd:
        Credential.objects.create(name="control", secrets={"private_key": sshd.control.private})
        config = {"credential": "control", "min_free_mib": 1, "connect_timeout": 2}
        blueprint("lab", kind="ssh_host", resource_type="host", config=config)
        given = {**sshd.registration(), "name": "node-1", "slots": 2}
        row = Resource.objects.get(pk=resources.register(who, "lab", given).id)
        until(row, state="active")
        blueprint("devices", kind="accelerators", resource_type="accelerator", config={"reports": "sent"})
        yield row


@pytest.mark.slow
def test_install_again_and_uninstall(server, host, layout, who, tmp_path):  # noqa: F811
    offered = agents.current_program()
    pem, _ = authority(tmp_path)
    several = pem * 10
    with arguments() as seen:
        made = agents.install_agent(who, host.pk, server=server.url, ca=several)
    assert any(b"drydock-agent.pyz" in one for one in seen)
    assert not any(b"ddj_" in one or b"ddk_" in one for one in seen), "every account can read arguments"
    assert (made.version, made.sha256, made.started) == (offered.version, offered.sha256, False)
    assert "has no systemd. Start it as" in made.steps[-1]
    agent = Agent.objects.get()
    assert (agent.pk, agent.place, agent.version) == (made.agent, str(host.pk), offered.version)
    assert agent.reported_at is not None, "it has reported"
    folder, file = Path(layout.folder), Path(layout.folder) / "program/drydock-agent.pyz"
    assert file.read_bytes() == offered.content
    assert (folder / "ca.pem").read_text() == several
    owner = pwd.getpwnam(layout.account).pw_uid
    for path in (folder, file, folder / "agent.json"):
        assert (path.stat().st_uid, path.stat().st_mode & 0o077) == (owner, 0), path
    steps = list(Event.objects.filter(kind="agent.install_step").values_list("message", flat=True))
    assert len(steps) == 4
    assert not any("ddj_" in one for one in Event.objects.values_list("message", flat=True))

    again = agents.install_agent(who, host.pk, server=server.url)
    assert again.agent == made.agent
    assert JoinCode.objects.count() == 1, "it had joined"

    gone = agents.uninstall_agent(who, host.pk)
    assert f"Revoke agent {agent.pk} of blueprint devices" in gone.steps
    assert (folder.exists(), known(layout.account)) == (False, False)
    agent.refresh_from_db()
    assert agent.revoked_at is not None
    assert agents.uninstall_agent(who, host.pk).steps == ("Remove the agent",)


@pytest.mark.slow
def test_what_fails_is_undone(server, host, layout, who, monkeypatch):  # noqa: F811
    with pytest.raises(Conflict, match=r"node-1: Join http://127\.0\.0\.1:9 .*cannot be reached"):
        agents.install_agent(who, host.pk, server="http://127.0.0.1:9")
    assert (Path(layout.folder).exists(), known(layout.account)) == (False, False)
    assert not JoinCode.objects.filter(expires_at__gt=Now()).exists(), "the code has ended"

    broken = Package(version="7", content=remade("7", "raise SystemExit('it is broken')"))
    with monkeypatch.context() as patched:
        patched.setattr(program, "current", lambda: broken)
        with pytest.raises(Conflict, match="it is broken"):
            agents.install_agent(who, host.pk, server=server.url)
        assert (Path(layout.folder).exists(), known(layout.account)) == (False, False)
        assert not Agent.objects.exists()

    agents.install_agent(who, host.pk, server=server.url)
    file = Path(layout.folder) / "program/drydock-agent.pyz"
    good = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(program, "current", lambda: broken)
        with pytest.raises(Conflict, match="it is broken"):
            agents.install_agent(who, host.pk, server=server.url)
    assert file.read_bytes() == good, "the earlier installation is back"
    assert Agent.objects.get().revoked_at is None
    agents.uninstall_agent(who, host.pk)


def test_a_file_that_arrives_damaged_is_not_run(host, layout, who, monkeypatch):
    """The hash is computed on the host, over what was written."""
    damaged = agents.current_program().content[:-1]
    monkeypatch.setattr(base64, "b64encode", lambda content, of=base64.b64encode: of(damaged))
    with pytest.raises(Conflict, match="The file arrived with the SHA-256"):
        agents.install_agent(who, host.pk, server="http://127.0.0.1:9")
    assert (Path(layout.folder).exists(), known(layout.account)) == (False, False)


def test_an_account_of_something_else_is_left_alone(host, layout, who):
    subprocess.run(["useradd", "--system", "--home-dir", "/nonexistent", layout.account], check=True)
    with pytest.raises(Conflict, match="belongs to something else"):
        agents.install_agent(who, host.pk, server="https://drydock.example.org")
    assert agents.uninstall_agent(who, host.pk).steps == ("Remove the agent",)
    assert known(layout.account)


def test_the_rest_api_installs_too_and_says_which_step_failed(host, layout, api, chief):
    operator = api(chief, "operate")
    given = {"server": "http://127.0.0.1:9", "blueprint": "devices"}
    failed = operator("POST", f"resources/{host.pk}/agent", given, code=409)
    assert failed["code"] == "agent_not_installed"
    assert "Join http://127.0.0.1:9" in failed["detail"]
    assert (Path(layout.folder).exists(), known(layout.account)) == (False, False)
    long = {**given, "ca": "x" * 3000}
    assert operator("POST", f"resources/{host.pk}/agent", long, code=400)["field"] == "ca"
    assert operator("DELETE", f"resources/{host.pk}/agent")["steps"] == ["Remove the agent"]


def test_a_second_installation_at_once_is_refused_and_a_dead_one_is_forgotten(host, layout, who):
    with installation._alone(host):
        for act in (agents.uninstall_agent, lambda *given: agents.install_agent(*given, server="http://127.0.0.1:9")):
            with pytest.raises(
                Conflict, match=r"An installation of the agent on node-1, or its removal, is under way s"
            ):
                act(who, host.pk)
        assert SlotLock.objects.get().resource == host, "a refused one ends nothing"
        SlotLock.objects.update(created_at=Now() - installation._LONGEST)
        assert agents.uninstall_agent(who, host.pk).steps == ("Remove the agent",)
    assert not SlotLock.objects.exists()


def test_requests_that_cannot_be_met_change_nothing(host, blueprint, who, owner, layout, tmp_path):
    url = "https://drydock.example.org"
    pem, key = authority(tmp_path)
    wrong = (
        (NotAllowed, lambda: agents.install_agent(caller(owner), host.pk, server=url)),
        (NotAllowed, lambda: agents.uninstall_agent(caller(owner), host.pk)),
        (NotFound, lambda: agents.install_agent(who, 987654321, server=url)),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="https://a b")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="ftp://a")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="https://[a")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="https://a:70000")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server="http://a")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server=url, ca="no certificate")),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server=url, ca=pem.replace("M", "Z"))),
        (InvalidRequest, lambda: agents.install_agent(who, host.pk, server=url, ca=pem + key)),
        (NotFound, lambda: agents.install_agent(who, host.pk, server=url, blueprint="none")),
        (DrydockError, lambda: agents.install_agent(who, host.pk, server=url, blueprint="lab")),
    )
    for error, call in wrong:
        with pytest.raises(error):
            call()
    blueprint("read", kind="accelerators", resource_type="accelerator")
    with pytest.raises(InvalidRequest, match="Blueprint read takes no reports about host 'node-1'"):
        agents.install_agent(who, host.pk, server=url, blueprint="read")
    with pytest.raises(InvalidRequest, match="Blueprint read takes no reports about host 'node-1'"):
        agents.create_join_code(who, "read", host="node-1")
    blueprint("others", kind="accelerators", resource_type="accelerator", config={"reports": "sent"})
    with pytest.raises(InvalidRequest, match="Several blueprints take reports about node-1: devices, others"):
        agents.install_agent(who, host.pk, server=url)
    assert not known(layout.account)
    assert not JoinCode.objects.exists()
