"""Steps of a DPU whose BMC fetches the image by SCP: which server, what its key may do, and one installation."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import Answer, Failed, Json, Need, Ready, Scope, Wait
from blueprints.dpu.bluefield import flashing, host, preparing, publishing, scp
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.kind import Bluefield
from blueprints.specs import LeaseView, Whole
from interfaces.endpoints import LocalEndpoint, SshEndpoint
from interfaces.keys import new_key_pair
from interfaces.ssh.pool import POOL
from interfaces.transports import transport_to
from tests.bluefield.accounts import clear, lease_in
from tests.bluefield.dpus import Webroot, publish, web
from tests.bluefield.lab import Lab
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import bluefield, small
from tests.bmc.flashing import UPDATE
from tests.bmc.flashing import flashing as flashed
from tests.bmc.scp import EXCHANGE
from tests.peers import require

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture(scope="module")
def server() -> Iterator[peers.Server]:
    peers.needs_root()
    with peers.server(f"127.9.5.{peers.WORKER + 201}") as running:
        yield running


@pytest.fixture(scope="module")
def account(server: peers.Server) -> Iterator[str]:
    """The account that the host has made for the lease."""
    with peers.account() as name:
        yield name


class ScpLab(Lab):
    """A card whose BMC fetches by SCP only, and a host with an account for the lease."""

    server: peers.Server
    account: str

    def host(self, **changes: Any) -> LeaseView:
        """Return the lease on the host, with other values of its control connection."""
        return lease_in(self.server, self.account, **changes)

    @property
    def home(self) -> Path:
        return Path(pwd.getpwnam(self.account).pw_dir)

    @property
    def files(self) -> list[Path]:
        return list(self.home.rglob("*.bfb"))

    def choose(self) -> Answer:
        self.done(publishing.look_at_image, preparing.check_compatible, preparing.decide)
        return self.carry(preparing.choose_route)

    def published(self) -> None:
        """Bring it to the point at which the keys are exchanged."""
        assert isinstance(answer := self.choose(), Ready), answer
        self.parents[host.SERVER] = self.host()
        self.done(host.have_host, publishing.have_webroot, flashing.check_protocol, host.make_folder)
        self.done(publishing.publish, flashing.note_rshim, flashing.take_rshim)

    def exchanged(self) -> None:
        """Bring it to the point at which the installation is requested."""
        self.published()
        self.done(scp.exchange_keys)

    def as_bmc(self, program: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        known = self.card.scp
        return known.run(program, *known.to(self.server.address), *words, given=given)

    @property
    def there(self) -> str:
        return f"{self.account}@{self.server.address}"


@pytest.fixture
def lab(tmp_path: Path, server: peers.Server, account: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScpLab]:
    require("sshd")
    peers.require("scp")
    monkeypatch.setattr(scp, "PORT", server.port)
    with (
        bluefield(small()) as bmc, flashed(bmc) as card, web(tmp_path / "images") as images,
        web(tmp_path / "site") as site,
    ):  # fmt: skip
        publish(images)
        found = ScpLab(bmc, card, images, Webroot(site))
        found.server, found.account, found.more = server, account, {"scp": {"hostname": "images"}, "rshim": ""}
        card.scp.ports[server.address] = server.port
        del found.parents["image"]
        lease = found.parents["card"]
        found.parents["card"] = replace(lease, resource=replace(lease.resource, facts={"card": {"protocols": ["SCP"]}}))
        yield found
        assert not card.interrupted
        assert not bmc.sessions
        POOL.close_idle(0)
        clear(account)


# The route


def test_the_bmc_fetches_by_scp_if_it_does_not_know_http(lab):
    assert isinstance(answer := lab.choose(), Ready)
    assert answer.facts == {"route": "scp"}
    asked = lab.call(host.have_host)
    assert isinstance(asked, Need)
    (lease,) = asked.leases
    assert (lease.type, lease.lifetime, lease.requirements) == ("host", "phase", {"hostname": "images"})
    assert lab.call(publishing.have_webroot) == Ready()


@pytest.mark.parametrize(
    ("protocols", "more", "route"),
    [
        (["SCP", "HTTP"], {}, "bmc"), ([], {}, "bmc"), (["SCP"], {"scp": {"hostname": "other"}}, "scp"),
        (["SCP"], {"scp": None, "rshim": "/dev/rshim0"}, "rshim"), (["HTTPS"], {"rshim": "/dev/rshim0"}, "rshim"),
    ],
)  # fmt: skip
def test_http_comes_before_scp_and_rshim_comes_last(lab, protocols, more, route):
    lease = lab.parents["card"]
    lab.parents["card"] = replace(lease, resource=replace(lease.resource, facts={"card": {"protocols": protocols}}))
    lab.more = {**lab.more, **more}
    assert isinstance(answer := lab.choose(), Ready)
    assert answer.facts["route"] == route


def test_a_card_without_any_route_names_all_settings_that_would_give_it_one(lab):
    lab.more = {"rshim": ""}
    answer = lab.choose()
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("protocol", Scope.OFFER)
    assert all(name in answer.message for name in ("fetches images by SCP", "`scp`", "`rshim`", "update the BMC"))


# The server


def _other(server: peers.Server, **fields: Any) -> SshEndpoint:
    known: Json = {"host": server.address, "port": server.port, "user": "root", "host_keys": (server.host.public,)}
    return SshEndpoint(**{**known, **fields})


@pytest.mark.parametrize(
    ("fields", "said"), [({"port": 2222}, "port 2222"), ({"host": "fe80::1"}, "IPv6")], ids=["port", "IPv6"]
)
def test_a_server_that_no_bmc_could_reach_is_refused_before_anything_is_copied(lab, fields, said):
    lab.choose()
    transport = transport_to(_other(lab.server, **fields), private_key=lab.server.control.private)
    lab.parents[host.SERVER] = lab.host(transport=transport)
    _refused(lab.call(flashing.check_protocol), said)


def test_a_server_behind_a_bastion_is_refused(lab):
    lab.choose()
    key = lab.server.control.private
    transport = transport_to(_other(lab.server, bastion=_other(lab.server)), private_key=key, bastion_key=key)
    lab.parents[host.SERVER] = lab.host(transport=transport)
    _refused(lab.call(flashing.check_protocol), "through the bastion")


def test_the_host_of_the_card_is_refused(lab):
    lab.choose()
    lab.parents[host.SERVER] = there = lab.host()
    own = Whole(id=there.resource.id, name="h1", type="host", kind="ssh_host")
    card = lab.parents["card"]
    lab.parents["card"] = replace(card, resource=replace(card.resource, part_of=(own,)))
    _refused(lab.call(host.have_host), "is the host of the card")
    other = replace(own, id=own.id + 1)
    lab.parents["card"] = replace(card, resource=replace(card.resource, part_of=(other,)))
    assert lab.call(host.have_host) == Ready()


def test_no_host_is_leased_after_the_blueprint_has_lost_its_server(lab):
    lab.choose()
    lab.more = {"rshim": "/dev/rshim0"}
    answer = lab.call(host.have_host)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("protocol", Scope.OFFER)


def test_a_server_that_is_not_described_is_refused(lab):
    with pytest.raises(ValidationError, match="at least 1 item"):
        Config(image="https://x.example/a.bfb", address="dpu", scp={})


def test_the_bmc_is_told_the_ed25519_key_only_if_there_is_one():
    rsa, best = "ssh-rsa AAAAB3NzaC1yc2E", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
    assert scp.preferred((rsa, best)) == (best,)
    assert scp.preferred((rsa,)) == (rsa,)


def test_a_step_keeps_its_place_so_that_a_build_of_an_older_version_goes_on_where_it_was():
    names = [one.name for one in Bluefield().build()]
    assert names[:17] == [
        "image", "card", "lock", "compatible", "decide", "route", "host", "webroot", "protocol", "folder", "publish",
        "hold", "rshim_before", "rshim", "own", "flash", "unpublish",
    ]  # fmt: skip


def test_a_host_without_ssh_is_refused(lab):
    lab.choose()
    transport = transport_to(LocalEndpoint(uid=0, gid=0, home="/"))
    lab.parents[host.SERVER] = lab.host(transport=transport)
    _refused(lab.call(flashing.check_protocol), "not reached by SSH")


def test_a_host_without_scp_is_refused(lab, monkeypatch):
    lab.choose()
    lab.parents[host.SERVER] = lab.host()
    monkeypatch.setattr(scp, "_ACCOUNT", scp._ACCOUNT.replace("command -v scp", "command -v no-such-program"))
    _refused(lab.call(flashing.check_protocol), "openssh-client")


def test_a_host_whose_leases_share_an_account_is_refused(lab):
    lab.choose()
    lab.parents[host.SERVER] = replace(lab.host(), controlled=lambda _: None)
    _refused(lab.call(host.have_host), "accounts: per_lease")


def _refused(answer: Answer, said: str) -> None:
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("needs_operator", Scope.OPERATOR)
    assert said in answer.message


# The installation


def test_a_card_is_installed_by_scp_and_nothing_is_left_on_the_server(lab):
    lab.exchanged()
    (file,) = lab.files
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o640, 0o710)
    assert file.stat().st_gid == pwd.getpwnam(lab.account).pw_gid
    assert isinstance(answer := lab.carry(flashing.flash), Ready), answer
    assert lab.card.imaged == ["dpu-1"]
    (task,) = lab.card.tasks.values()
    assert task.body["ImageURI"] == f"{lab.server.address}/{file}"
    assert (task.body["TransferProtocol"], task.body["Username"]) == ("SCP", lab.account)
    lab.done(publishing.unpublish, flashing.wait_until_running)
    assert not lab.files
    assert not (lab.home / ".ssh").exists()
    assert b"Permission denied" in lab.as_bmc("ssh", lab.there, "id").stderr
    lab.parents.pop(host.SERVER)
    lab.done(publishing.unpublish, flashing.wait_for_flash, flashing.park, flashing.leave_rshim)
    assert (lab.card.power, lab.card.rshim) == ("Off", False)


def test_a_worker_that_dies_after_the_exchange_makes_it_again_and_asks_for_one_installation(lab):
    lab.published()
    lab.call(scp.exchange_keys)  # its answer is lost
    lab.done(scp.exchange_keys)
    assert lab.card.scp.known == [f"{lab.server.address} {' '.join(lab.server.host.public.split()[:2])}"]
    assert len((lab.home / ".ssh/authorized_keys").read_text().splitlines()) == 1
    first = lab.call(flashing.flash)
    lab.bmc.lose = f"POST {UPDATE}"
    assert isinstance(lost := lab.call(flashing.flash, first.memo), Wait)
    lab.bmc.lose = ""
    assert isinstance(lab.carry(flashing.flash, lost.memo), Ready)
    assert (lab.bmc.calls.count(f"POST {UPDATE}"), lab.card.imaged) == (1, ["dpu-1"])


def test_an_exchange_whose_answer_is_lost_is_made_again(lab):
    lab.published()
    lab.bmc.lose = f"POST {EXCHANGE}"
    assert isinstance(answer := lab.call(scp.exchange_keys), Failed)
    assert answer.scope == Scope.STEP
    assert not (lab.home / ".ssh").exists()
    lab.bmc.lose = ""
    lab.done(scp.exchange_keys)


def test_an_installation_is_not_requested_without_the_lease_on_the_server(lab):
    lab.exchanged()
    first = lab.call(flashing.flash)
    lab.parents.pop(host.SERVER)
    assert isinstance(answer := lab.call(flashing.flash, first.memo), Failed)
    assert (answer.code, lab.card.tasks) == ("webroot_gone", {})


def test_a_bmc_that_knows_the_server_by_another_key_does_not_install(lab):
    lab.exchanged()
    lab.card.scp.known = [f"{lab.server.address} {new_key_pair('other').public}"]
    answer = lab.carry(flashing.flash)
    assert isinstance(answer, Failed)
    assert answer.code == "public_key_missing"
    assert "RevokeAllRemoteServerPublicKeys" in answer.message
    assert not lab.card.imaged


@pytest.mark.parametrize("sent", ["none", "ssh-ed25519 AAAA root@dpu-bmc", 'command="id" ssh-ed25519 AAAA'])
def test_what_is_no_public_key_does_not_come_into_authorized_keys(lab, sent):
    lab.published()
    lab.card.scp.sent = sent
    answer = lab.call(scp.exchange_keys)
    assert isinstance(answer, Failed)
    assert answer.code == "bmc_answer_invalid"
    assert not (lab.home / ".ssh").exists()


def test_a_bmc_that_offers_no_exchange_is_refused(lab):
    lab.published()
    lab.bmc.resources["/redfish/v1/UpdateService"]["Actions"].pop("Oem")
    answer = lab.call(scp.exchange_keys)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("bmc_lacks", Scope.OPERATOR)


def test_firmware_that_names_the_exchange_elsewhere_is_understood(lab):
    actions = lab.bmc.resources["/redfish/v1/UpdateService"]["Actions"]
    actions["Oem"] = actions["Oem"]["Nvidia"]
    lab.exchanged()


# The key of the BMC


def test_the_key_of_the_bmc_fetches_this_file_and_does_nothing_else(lab, tmp_path):
    lab.exchanged()
    (file,) = lab.files
    target = tmp_path / "fetched"
    done = lab.as_bmc("scp", "-O", "-v", f"{lab.there}:{file}", str(target))
    assert target.read_bytes() == file.read_bytes(), done.stderr
    assert b"Sending file modes:" in done.stderr, "without it, the BMC ends the transfer after ten seconds"
    before = file.read_bytes()
    other = tmp_path / "other"
    for given in ["-O", "/etc/passwd"], ["-s", "/etc/passwd"], ["-s", str(file)]:
        assert lab.as_bmc("scp", given[0], f"{lab.there}:{given[1]}", str(other)).returncode, given
        assert not other.exists()
    for command in "id", "cat /etc/passwd", "", f"scp -f /etc/passwd; id >{tmp_path}/ran", f"scp -t -- {file}":
        said = lab.as_bmc("ssh", lab.there, command, given=b"C0644 3 new\nabc\0").stdout
        assert b"uid=" not in said
        assert b"root:" not in said
    assert not (tmp_path / "ran").exists()
    forwarded = lab.as_bmc("ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9", lab.there)
    assert b"remote port forwarding failed" in forwarded.stderr
    assert file.read_bytes() == before
    assert not (lab.home / "new").exists()


def test_a_message_about_the_transfer_does_not_show_the_name_of_the_file(lab):
    lab.exchanged()
    (file,) = lab.files
    file.unlink()
    answer = lab.carry(flashing.flash)
    assert isinstance(answer, Failed)
    assert "The transfer of" in answer.message
    assert file.stem not in answer.message
