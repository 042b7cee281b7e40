"""`drydock ssh-config`: the system's ssh knows leases, and of ~/.ssh/config only our block is touched."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drydock.cli.ssh import config as ssh_config
from drydock.cli.ssh import connection
from drydock.cli.toolkit.exits import stoppable
from drydock.core.errors import Conflict, InvalidRequest
from interfaces.keys import new_key_pair
from interfaces.ssh.keyagent import KeyAgent
from tests.blueprints import host_peers as peers
from tests.cli.test_ssh import INFO, lab, leased, user_of

__all__ = ["lab"]

pytestmark = pytest.mark.timeout(300, func_only=True)
THEIRS = b"# mine \xff\r\nHost work\n    User ada"
BLOCK = b"# BEGIN drydock: x\nInclude a\n# END drydock\n"


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_ssh_knows_a_lease_by_number_and_name_and_no_key_is_written(cli, lab, tmp_path_factory):
    home = tmp_path_factory.mktemp("h")
    (home / ".ssh").mkdir(mode=0o700)
    config = home / ".ssh/config"
    config.write_bytes(THEIRS)
    config.chmod(0o640)
    here = cli.also(HOME=str(home), TMPDIR=str(home))
    with leased(cli, "near", "--name", "site") as lease:
        number, user = str(lease["id"]), user_of(cli, lease)
        with leased(cli, "near", "--name", "a * !b -o") as hostile:
            said = here("ssh-config", "--install")
            assert said.stdout.split() == [f"drydock-{hostile['id']}", "drydock-site"]
        key = cli("key", number).stdout.splitlines()[1].encode()
        for name in (f"drydock-{number}", "drydock-site"):
            done = subprocess.run(
                ["ssh", "-F", config, name, "id -un; cat; exit 5"], env=here.environment, capture_output=True,
                input=b"given", timeout=60,
            )  # fmt: skip
            assert (done.stdout, done.returncode) == (f"{user}\ngiven".encode(), 5), done.stderr
        assert not any(key in content or b"PRIVATE" in content for content in files(home).values())
        peers.eventually(lambda: not list((home / ".ssh/drydock").glob("*.agent*")))
        assert (config.read_bytes().endswith(THEIRS), config.stat().st_mode & 0o777) == (True, 0o640)
        once = files(home)
        here("ssh-config", "--install")
        assert config.read_bytes() == once[".ssh/config"]
        cli("release", number)
        ended = subprocess.run(
            ["ssh", "-F", config, "drydock-site", "true"], env=here.environment, capture_output=True, timeout=60
        )
        assert ended.returncode == 255
        assert b"has ended" in ended.stderr
    assert "no active lease" in here("ssh-config", "--install").stderr
    here("ssh-config", "--remove")
    assert files(home) == {".ssh/config": THEIRS}
    assert not (home / ".ssh/drydock").exists()
    here("ssh-config", "--remove")
    assert "Give one of" in here("ssh-config", code=2).stderr


def test_the_entries_of_a_lease_behind_a_bastion_lead_there(cli, lab, tmp_path_factory):
    home = tmp_path_factory.mktemp("h")
    here = cli.also(HOME=str(home), TMPDIR=str(home), SSH_AUTH_SOCK="")
    with leased(cli, "far") as lease:
        here("ssh-config", "--install")
        text = (home / ".ssh/drydock/here.config").read_text()
        assert f"HostName {lab.far.address}\n" in text
        assert (home / ".ssh").stat().st_mode & 0o077 == 0
        # Without a key for the bastion it is the bastion that refuses, under its pinned key.
        done = subprocess.run(
            ["ssh", "-F", home / ".ssh/config", f"drydock-{lease['id']}", "true"], env=here.environment,
            capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 255
        assert f"@{lab.bastion.address}: Permission denied".encode() in done.stderr
        here("ssh-config", "--remove")


def test_a_block_that_was_changed_by_hand_is_left_alone(tmp_path):
    file = tmp_path / "config"
    for content in (
        b"# BEGIN drydock: x\nHost a\n" + BLOCK, BLOCK.replace(b"Include a\n", b"Include a\nHost b\n"),
        b"# END drydock\nHost a\n",
    ):  # fmt: skip
        file.write_bytes(content)
        with pytest.raises(Conflict):
            ssh_config._edit(file, b"")
        assert file.read_bytes() == content
    file.write_bytes(b"Host a\n" + BLOCK + b"Host b\n")
    ssh_config._edit(file, BLOCK)
    assert file.read_bytes() == BLOCK + b"Host a\nHost b\n"


def test_a_link_to_the_file_stays_and_a_failure_leaves_all_as_it_was(tmp_path, monkeypatch):
    kept, link = tmp_path / "dotfiles", tmp_path / "config"
    kept.write_bytes(THEIRS)
    link.symlink_to(kept)
    ssh_config._edit(link, BLOCK)
    assert link.is_symlink()
    assert kept.read_bytes() == BLOCK + THEIRS

    def fails(*_):
        raise OSError("full")

    monkeypatch.setattr(ssh_config.os, "replace", fails)
    with pytest.raises(OSError, match="full"):
        ssh_config._edit(link, b"")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config", "dotfiles"]
    assert kept.read_bytes() == BLOCK + THEIRS


@pytest.mark.parametrize("name", ["-o", "a b", "a\nHost *", "*", "!x", "12", "", "a#b", "ü"])
def test_a_name_that_means_something_to_ssh_is_no_alias(name):
    assert ssh_config._ALIAS.fullmatch(name) is None


def test_names_of_a_servers_leases_name_the_server(monkeypatch):
    monkeypatch.setenv("DRYDOCK_SERVER", "https://dd.example.org:8443")
    assert ssh_config._label() == "dd.example.org-8443"
    said = ssh_config._proxy(12, Path("/a b/12.agent"))
    assert "DRYDOCK_SERVER=https://dd.example.org:8443" in said
    assert said.endswith("ssh-proxy --agent '/a b/12.agent' 12")


def test_an_agents_socket_has_room_for_its_path():
    folder = Path("/home/ada/.ssh/drydock")
    assert ssh_config._agent(folder, "dd.example.org", 12) == folder / "dd.example.org-12.agent"
    for label in ("a" * 63 + ".example.org-8443", "b" * 63 + ".example.org-8443"):
        short = ssh_config._agent(folder, label, 12)
        assert (short.parent, len(short.name)) == (folder, len("12345678-12.agent"))
    with pytest.raises(InvalidRequest, match="paths of sockets can have"):
        ssh_config._agent(Path("/home") / ("a" * 90) / ".ssh/drydock", "here", 12)


def test_the_agent_goes_though_ssh_hangs_up_while_it_ends(tmp_path, monkeypatch):
    """OpenSSH closes a proxy's input and sends it SIGHUP at once; which of the two comes first is chance."""
    agent, end = tmp_path / "agent", KeyAgent.__exit__

    def hung_up(self: KeyAgent, *how: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        end(self, *how)

    monkeypatch.setattr(connection, "lease_key", lambda client, lease: new_key_pair("test").private)
    monkeypatch.setattr(KeyAgent, "__exit__", hung_up)
    before = signal.getsignal(signal.SIGHUP)
    with stoppable(), connection.connection(None, INFO, agent=agent):
        assert agent.exists()
    assert not agent.exists()
    assert signal.getsignal(signal.SIGHUP) is before
