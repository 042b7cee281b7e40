"""Steps of a DPU that is installed by rshim from its host: the log decides, and nothing interrupts the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blueprints.answers import Absent, Answer, Failed, Need, Ready, Scope, Wait
from blueprints.bluefield.rshim import device as read_device
from blueprints.dpu.bluefield import flashing, host, preparing, publishing, streaming
from blueprints.dpu.bluefield.kind import Bluefield as Kind
from interfaces.ssh.pool import POOL
from tests.bluefield.dpus import Webroot, publish, resources, web
from tests.bluefield.lab import Lab
from tests.bluefield.rshim import INSTALLED, Rshim, host_lease, rshim, until
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import SERIAL, bluefield
from tests.bmc.flashing import UPDATE
from tests.bmc.flashing import flashing as flashed
from tests.peers import require

pytestmark = pytest.mark.timeout(300, func_only=True)
PACE = 0.2


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture(scope="module")
def server() -> Iterator[peers.Server]:
    peers.needs_root()
    with peers.server(f"127.9.5.{peers.WORKER + 1}") as running:
        yield running


class RshimLab(Lab):
    """A card whose BMC fetches by SCP only, in a host with its rshim."""

    device: Rshim
    server: peers.Server
    folder: Path

    def change_card(self, **more: Any) -> None:
        lease = self.parents["card"]
        self.parents["card"] = replace(lease, resource=replace(lease.resource, **more))

    def without_bmc(self) -> None:
        row = self.parents["card"].resource
        attributes = {**row.attributes, "via": "rshim"}
        self.change_card(registration={"serial": SERIAL}, facts={}, attributes=attributes, credential={})

    def choose(self) -> Answer:
        self.done(publishing.look_at_image, preparing.check_compatible, preparing.decide)
        return self.carry(preparing.choose_route)

    def sent(self) -> None:
        """Bring it to the point at which the stream begins."""
        assert isinstance(answer := self.choose(), Ready), answer
        self.parents[host.LEASE] = host_lease(self.server, self.folder)
        for act in (host.make_folder, publishing.publish, flashing.note_rshim, flashing.take_rshim, streaming.own):
            assert isinstance(answer := self.carry(act, pace=PACE / 4), Ready), answer

    def flash(self) -> Answer:
        return self.carry(flashing.flash, pace=PACE, calls=200)

    @property
    def boot_mode(self) -> int | None:
        """The boot mode that the host shows."""
        shown = read_device((self.device.folder / "misc").read_text())
        return shown.boot_mode if shown else None

    @property
    def files(self) -> list[Path]:
        return [one for one in (self.folder / "home").rglob("*.bfb") if one.is_file()]


@pytest.fixture
def lab(tmp_path: Path, server: peers.Server) -> Iterator[RshimLab]:
    require("sshd")
    with (
        bluefield(resources()) as bmc, flashed(bmc) as card, web(tmp_path / "images") as images,
        web(tmp_path / "site") as site, rshim(tmp_path / "rshim0", card) as device,
    ):  # fmt: skip
        publish(images)
        found = RshimLab(bmc, card, images, Webroot(site))
        del found.parents["image"]
        found.device, found.server, found.folder = device, server, tmp_path
        found.more = {"rshim": str(device.folder), "sha256": ""}
        device.bmc = lambda: card.rshim
        found.change_card(
            facts={"card": {"protocols": ["SCP"]}},
            part_of=(replace(found.parents["card"].resource.part_of[0], kind="ssh_host"),),
        )
        yield found
        device.paused.clear()
        until(lambda: not device.receiving)
        assert UPDATE not in "".join(bmc.calls), "the BMC is asked to install nothing"
        assert not card.interrupted
        assert not bmc.sessions
        POOL.close_idle(0)


# The route


def test_the_image_comes_from_the_host_if_the_bmc_does_not_fetch_it_by_http(lab):
    assert isinstance(answer := lab.choose(), Ready)
    assert answer.facts == {"route": "rshim", "rshim_folder": str(lab.device.folder)}
    asked = lab.call(host.have_host)
    assert isinstance(asked, Need)
    (lease,) = asked.leases
    assert (lease.type, lease.lifetime, lease.on_resources) == ("host", "phase", (4,))
    lab.parents[host.LEASE] = host_lease(lab.server, lab.folder)
    asked = lab.call(host.have_host)
    assert isinstance(asked, Need)
    assert [(one.scope, one.candidates) for one in asked.locks] == [("rshim of host4", (str(lab.device.folder),))]
    assert lab.call(publishing.have_webroot) == Ready()
    assert lab.call(flashing.check_protocol) == Ready()


def test_a_bmc_that_fetches_by_http_is_used(lab):
    lab.change_card(facts={"card": {"protocols": ["SCP", "HTTP"]}})
    assert lab.choose() == Ready(facts={"route": "bmc"})
    for act in (host.have_host, host.make_folder, streaming.own, streaming.give_back, flashing.lease_host):
        assert lab.call(act) == Ready()


def test_each_card_of_a_host_has_a_folder_of_its_own(lab):
    lab.more = {"rshims": {f" {SERIAL.lower()}": "/dev/rshim1"}}
    assert isinstance(answer := lab.choose(), Ready)
    assert answer.facts["rshim_folder"] == "/dev/rshim1"


@pytest.mark.parametrize(
    ("more", "part_of", "code", "said"),
    [({"rshim": ""}, None, "protocol", "SCP"), ({}, (), "host_unknown", "host is unknown")],
)
def test_a_card_that_can_be_installed_by_no_route_is_not_written_to(lab, more, part_of, code, said):
    lab.more = {**lab.more, **more}
    if part_of is not None:
        lab.change_card(part_of=part_of)
    answer = lab.choose()
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == (code, Scope.OFFER)
    assert said in answer.message


def test_a_host_whose_leases_share_an_account_is_not_used(lab):
    lab.choose()
    lab.parents[host.LEASE] = host_lease(lab.server, lab.folder, controlled=False)
    answer = lab.call(host.have_host)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("needs_operator", Scope.OPERATOR)


# The installation


def test_a_card_is_installed_once_and_the_image_is_removed_from_the_host(lab):
    lab.card.rshim = True
    lab.sent()
    assert lab.facts["bmc_rshim"] is True
    assert not lab.card.rshim, "the BMC has left the rshim to the host"
    (found,) = lab.files
    assert found.stat().st_mode & 0o777 == 0o600
    assert all(folder.stat().st_mode & 0o022 == 0 for folder in found.parents if folder.is_relative_to(lab.folder))
    answer = lab.flash()
    assert isinstance(answer, Ready), answer
    assert "DPU is ready" in answer.log
    assert (lab.card.imaged, lab.device.streams, lab.device.log) == (["dpu-1"], 1, list(INSTALLED))
    lab.done(publishing.unpublish, streaming.give_back)
    assert found not in lab.files
    assert lab.device.written == ["DISPLAY_LEVEL 2", "DISPLAY_LEVEL 0"]
    lab.done(flashing.wait_until_running)
    assert lab.call(flashing.lease_host) == Ready(), "the end of the DPU does not need the host"
    del lab.parents[host.LEASE]
    lab.done(flashing.wait_for_flash, flashing.park, flashing.leave_rshim)
    assert (lab.card.power, lab.card.rshim) == ("Off", True)


def test_a_card_without_a_bmc_is_installed_and_stopped_from_its_host(lab):
    lab.without_bmc()
    lab.sent()
    assert isinstance(lab.flash(), Ready)
    lab.done(publishing.unpublish, flashing.wait_until_running, flashing.verify_versions)
    assert lab.card.running == ["dpu-1"]
    host_again = lab.parents.pop(host.LEASE)
    assert isinstance(lab.call(flashing.lease_host), Need)
    lab.parents[host.LEASE] = host_again
    lab.done(flashing.wait_for_flash)
    assert isinstance(answer := lab.carry(flashing.park, pace=PACE), Ready), answer
    assert (lab.card.running, lab.device.settings["BOOT_MODE"]) == ([], 0)
    assert lab.device.written[-2:] == ["BOOT_MODE 0", "SW_RESET 1"]
    assert not lab.bmc.calls


def test_a_card_without_a_bmc_that_goes_on_running_is_not_handed_back(lab, monkeypatch):
    lab.without_bmc()
    lab.sent()
    assert isinstance(lab.flash(), Ready)
    monkeypatch.setattr(streaming, "_answers", lambda spec: True)
    first = lab.call(flashing.park)
    assert isinstance(first, Wait)
    until(lambda: lab.boot_mode == 0)
    reset = lab.call(flashing.park, first.memo)
    assert isinstance(reset, Wait)
    until(lambda: "SW_RESET 1" in lab.device.written)
    monkeypatch.setattr(streaming, "_OFF", 0.0)
    assert isinstance(answer := lab.carry(flashing.park, reset.memo, pace=PACE), Failed)
    assert answer.code == "not_off"


def test_a_card_without_a_bmc_is_reset_only_once_it_would_wait_for_an_image(lab):
    lab.without_bmc()
    lab.sent()
    assert isinstance(lab.flash(), Ready)
    first = lab.call(flashing.park)
    assert isinstance(first, Wait)
    until(lambda: lab.boot_mode == 0)
    lab.device.settings["BOOT_MODE"] = 1
    until(lambda: lab.boot_mode == 1)
    assert lab.card.running == ["dpu-1"], "a reset would have started it again"
    assert isinstance(answer := lab.carry(flashing.park, first.memo, pace=PACE), Ready), answer
    assert (lab.card.running, lab.device.written[-3:]) == ([], ["BOOT_MODE 0", "BOOT_MODE 0", "SW_RESET 1"])


def test_versions_that_nobody_reports_are_refused(lab):
    lab.without_bmc()
    lab.more = {**lab.more, "versions": {"DPU_NIC": "1"}}
    answer = lab.carry(preparing.check_compatible)
    assert isinstance(answer, Failed)
    assert answer.code == "versions_unknown"


@pytest.mark.parametrize(
    ("logs", "code", "said"),
    [
        ((*INSTALLED[:5], "ERR[MISC]: CRITICAL ERROR: no eMMC"), "flash_failed", "CRITICAL ERROR: no eMMC"),
        ((*INSTALLED[:5], "INFO[MISC]: In Enhanced NIC mode"), "nic_mode", "NIC mode"),
        ((*INSTALLED[:8], "ERR[MISC]: ERR Installation failed", *INSTALLED[-3:]), "flash_failed", "failed"),
    ],
    ids=["critical", "nic", "former system"],
)
def test_a_failure_in_the_log_fails_the_build_whatever_the_job_says(lab, logs, code, said):
    lab.device.logs = logs
    lab.sent()
    answer = lab.flash()
    assert isinstance(answer, Failed)
    assert answer.code == code
    assert said in answer.message
    assert not lab.card.running or code == "flash_failed"
    assert lab.secrets[preparing.PATH] not in answer.message + answer.log


def test_a_log_that_falls_silent_after_linux_is_up_ends_by_our_limit(lab):
    lab.device.logs, lab.more = INSTALLED[:7], {**lab.more, "flash_limit": 3}
    lab.sent()
    answer = lab.flash()
    assert isinstance(answer, Failed)
    assert (answer.code, answer.facts) == ("flash_limit", {streaming.ENDED: True})
    assert "Linux up" in answer.message


def test_a_worker_that_dies_while_the_image_is_sent_changes_nothing(lab):
    lab.sent()
    lab.device.paused.set()
    first = lab.call(flashing.flash)
    lab.call(flashing.flash, first.memo)  # the job is started, and its answer is lost
    until(lambda: streaming._busy(lab.spec()))
    POOL.close_idle(0)
    assert flashing.find_flash(lab.spec(), first.memo) == Absent()
    second = lab.call(flashing.flash, first.memo)
    assert isinstance(second, Wait)
    waits = lab.call(flashing.wait_for_flash)
    assert isinstance(waits, Wait), "a destruction waits for the stream"
    assert "still written" in waits.sentence
    lab.device.paused.clear()
    assert isinstance(lab.carry(flashing.flash, second.memo, pace=PACE, calls=200), Ready)
    assert (lab.card.imaged, lab.device.streams) == (["dpu-1"], 1)
    assert lab.call(flashing.wait_for_flash) == Ready()


def test_a_host_that_does_not_answer_is_waited_for(lab):
    lab.sent()
    first = lab.call(flashing.flash)
    second = lab.call(flashing.flash, first.memo)
    POOL.close_idle(0)
    lab.server.stop()
    try:
        answer = lab.call(flashing.flash, second.memo)
        assert isinstance(answer, Wait)
        assert "does not answer" in answer.sentence
        lost = lab.call(flashing.flash, {**second.memo, "began": "2020-01-01T00:00:00+00:00"})
        assert isinstance(lost, Failed)
        assert (lost.code, lost.quarantines_carrier) == ("flash_unknown", True)
    finally:
        lab.server.again()
    assert isinstance(lab.carry(flashing.flash, answer.memo, pace=PACE, calls=200), Ready)
    assert lab.device.streams == 1


def test_a_lost_job_or_host_is_not_replaced_by_another_installation(lab):
    lab.sent()
    memo = {**lab.call(flashing.flash).memo, "started": True}
    answer = lab.call(flashing.flash, memo)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.quarantines_carrier) == ("flash_unknown", True)
    del lab.parents[host.LEASE]
    answer = lab.call(flashing.flash, memo)
    assert isinstance(answer, Failed)
    assert (answer.code, lab.device.streams) == ("flash_unknown", 0)


# Who has the rshim


def test_the_host_takes_the_rshim_from_another_owner_and_gives_it_back(lab):
    lab.without_bmc()
    lab.device.taken = True
    lab.sent()
    assert lab.facts[streaming.FORCED] is True
    lab.done(streaming.give_back)
    until(lambda: lab.device.taken)
    assert lab.device.written == ["FORCE_CMD 1", "DROP_MODE 1"]


@pytest.mark.parametrize("there", [True, False], ids=["dropped", "no folder"])
def test_an_rshim_that_the_host_does_not_get_is_not_written_to(lab, monkeypatch, there):
    monkeypatch.setattr(streaming, "_OWNED", 1.0)
    lab.without_bmc()
    lab.device.taken, lab.device.gives = True, False
    lab.choose()
    lab.parents[host.LEASE] = host_lease(lab.server, lab.folder)
    if not there:
        lab.facts["rshim_folder"] = str(lab.folder / "rshim9")
    until(lambda: "DROP_MODE       1" in (lab.device.folder / "misc").read_text())
    answer = lab.carry(streaming.own, pace=PACE)
    assert isinstance(answer, Failed)
    assert answer.code == "rshim"
    assert "attached via another backend" in answer.message
    assert not lab.device.streams


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"info": {"DEV_INFO": "BlueField-2(Rev 1)", "OPN_STR": "N/A", "BF_MODE": "Unknown"}}, "other_card"),
        ({"info": {"DEV_INFO": "BlueField-3(Rev 1)", "OPN_STR": "9009D3B400ENEA", "BF_MODE": "Unknown"}}, "other_card"),
        ({"info": {"DEV_INFO": "BlueField-3(Rev 1)", "OPN_STR": "N/A", "BF_MODE": "NIC mode"}}, "nic_mode"),
        ({"locked": True}, "rshim_locked"),
    ],
)  # fmt: skip
def test_another_card_or_one_that_cannot_be_installed_is_not_written_to(lab, change, code):
    attributes = {**lab.parents["card"].resource.attributes, "part_number": "900-9D3B6-00CV-AA0"}
    lab.change_card(attributes=attributes)
    for name, value in change.items():
        setattr(lab.device, name, value)
    shown = lab.device.render()
    until(lambda: (lab.device.folder / "misc").read_text() == shown)
    lab.choose()
    lab.parents[host.LEASE] = host_lease(lab.server, lab.folder)
    answer = lab.carry(streaming.own, pace=PACE)
    assert isinstance(answer, Failed)
    assert answer.code == code


def test_two_programs_do_not_write_to_one_rshim(lab):
    lab.sent()
    lab.device.paused.set()
    with open(lab.device.folder / "boot", "wb"):
        answer = lab.carry(streaming.own)
    assert isinstance(answer, Failed)
    assert answer.code == "rshim_busy"


@pytest.mark.parametrize("folder", ["rshim0", "/dev/../x", "/dev/rshim0/", "/dev/$X", "/dev/a b"])
def test_a_folder_that_is_no_plain_path_is_refused(lab, folder):
    with pytest.raises(ValueError, match="rshim"):
        Kind.Config.model_validate({"image": "https://x/a.bfb", "address": "x", "rshim": folder})
