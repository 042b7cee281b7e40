"""The ramdisk: what goes wrong between its boot and its end, and what is left then: no medium, and no open machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Json, Wait
from blueprints.baremetal import plans
from blueprints.baremetal.config import BareMetalRequirements, Config
from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.values import BootOverride, PowerState
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.outcome import Outcome
from drydock.core.errors import InvalidRequest
from interfaces.ssh.pool import POOL
from tests.blueprints.baremetal.ramdisk_bench import BMC, RamdiskHooks, media_server
from tests.blueprints.baremetal.scripted import Machine, MountingSession, machine, scripted
from tests.blueprints.host_peers import WORKER
from tests.bmc.guests import Guests, guests, iso_files

__all__ = ["scripted"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]
RAMDISK = {"url": "http://10.0.0.1/ramdisk.iso"}
IMAGE = {"url": "http://10.0.0.1/a.raw", "sha256": "a" * 64, "format": "raw"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with media_server(tmp_path_factory.mktemp("image")) as running:
        yield running


class Bed(RamdiskHooks):
    """A machine, and the ramdisk's settings that a test chooses."""

    def __init__(self, server: Any, guest: Guests, bmc: Machine) -> None:
        self.server, self.guest, self.bmc, self.given, self.ramdisk = server, guest, bmc, {}, {}

    def enrol(self) -> Outcome:
        return self.run("build", self.resource())

    def enrolled(self) -> ResourceView:
        return self.built()

    def active(self, resource: ResourceView) -> LeaseView:
        return self.activated(self.lease(resource))

    def ended(self, lease: LeaseView) -> tuple[ResourceView, LeaseView]:
        """Return the resource and the lease after its deactivation."""
        outcome = self.ready("deactivate", lease.resource, lease)
        assert outcome.spec.lease is not None
        return outcome.spec.resource, outcome.spec.lease


@pytest.fixture
def bed(server: Any, tmp_path: Path, scripted: None) -> Iterator[Bed]:
    tmp_path.chmod(0o755)
    with guests(tmp_path / "guest", f"127.9.9.{WORKER + 1}") as guest:
        drives = {"CD1": "", "CD2": ""}
        with machine(BMC, guest, state=PowerState.OFF, drives=drives) as bmc:
            guest.machine = bmc  # type: ignore[assignment]
            yield Bed(server, guest, bmc)
        POOL.close_idle(0)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome.answer, Failed), outcome.answer
    return outcome.answer


def test_a_machine_is_enrolled_deployed_rescued_and_erased(bed):
    host = bed.enrolled()
    assert (bed.guest.boots, bed.bmc.state, bed.inserted()) == (["ramdisk"], PowerState.OFF, [])
    assert [one["name"] for one in host.facts["disks"]] == ["vda"]
    assert host.facts["host_keys"] == []
    assert host.attributes.get("arch") is None, "the bench does not merge attributes"
    lease = bed.active(host)
    assert (bed.guest.runs, bed.inserted(), lease.facts["image"]) == ("disk", [], "small")
    seed = bed.guest.seed()
    assert json.loads(seed["meta-data"])["instance-id"] == lease.key
    host = replace(lease.resource, lease_facts=lambda: (lease.facts,))
    rescue = next(act for act in BareMetal().acts() if act.name == "rescue")
    rescued = bed.driver().run(rescue.plan(), replace(bed.act_spec(rescue, host), phase="act"))
    assert rescued.ended == "ready", rescued.answer
    assert (bed.guest.runs, bed.inserted()) == ("ramdisk", [])
    keys = (bed.guest.disks.root / "root/.ssh/authorized_keys").read_text()
    assert " ".join(lease.facts["public_key"].split()[:2]) in keys
    assert "The host key is ssh-ed25519" in rescued.calls[-1].answer.log
    host = rescued.spec.resource
    bed.ready("check", replace(host, power="on"))
    unrescue = next(act for act in BareMetal().acts() if act.name == "unrescue")
    back = bed.driver().run(unrescue.plan(), bed.act_spec(unrescue, host))
    assert (back.ended, bed.guest.runs, back.facts["rescue"]) == ("ready", "disk", None)
    bed.litter(lease)
    host, over = bed.ended(replace(lease, resource=back.spec.resource))
    assert (bed.guest.runs, bed.bmc.state) == ("", PowerState.OFF)
    clean = bed.ready("clean", host, over)
    (erased,) = [one for call in clean.calls for one in getattr(call.answer, "erasures", ())]
    assert (erased.disk, erased.method, erased.verified, erased.serial) == ("vda", "overwrite", True, "disk-1")
    assert not bed.left_by(lease)
    assert (bed.bmc.state, bed.inserted(), clean.spec.resource.facts["host_keys"]) == (PowerState.OFF, [], [])
    bed.destroyed(clean.spec.resource)


def test_a_machine_that_boots_from_another_device_is_not_enrolled(bed):
    bed.guest.ignores_override, bed.ramdisk = True, {"boot_timeout": 0.5}
    answer = failure(bed.enrol())
    assert answer.code == "ramdisk_silent"
    assert "did not accept a login" in answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])


def test_a_ramdisk_that_never_comes_up_leaves_the_machine_off_and_without_media(bed):
    bed.guest.hangs, bed.ramdisk = True, {"boot_timeout": 0.5}
    outcome = bed.enrol()
    assert (outcome.step, failure(outcome).code) == ("ramdisk_reach", "ramdisk_silent")
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    bed.guest.hangs, bed.ramdisk = False, {}
    bed.destroyed(bed.enrolled())


def test_another_system_at_the_address_is_not_taken_for_the_ramdisk(bed):
    host = bed.active(bed.enrolled()).resource
    bed.ramdisk = {"boot_timeout": 0.5}
    bed.guest.ignores_override = True
    host = replace(host, blueprint=bed.blueprint())
    answer = failure(bed.driver().run(plans.cleaning(), bed.spec("act", host)))
    assert "another system answers at its address, so it booted from another device" in answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])


@pytest.mark.parametrize(
    ("drives", "said"),
    [
        (None, "cannot insert a virtual medium"),
        ({"USB": "", "USB2": ""}, "has no virtual CD drive"),
        ({"CD1": ""}, "has one virtual drive only (CD1)"),
    ],
)
def test_a_bmc_without_the_drives_that_are_needed_says_which_are_missing(bed, drives, said):
    bed.bmc.drives = drives
    answer = failure(bed.enrol())
    assert (answer.code, said in answer.message) == ("bmc_lacks", True), answer.message
    assert not bed.guest.boots


@pytest.mark.parametrize(("boot", "drives"), [("http", {"USB": ""}), ("network", {"CD1": ""})])
def test_a_machine_boots_the_ramdisk_over_its_network_with_one_drive(bed, monkeypatch, boot, drives):
    chosen, real = [], MountingSession.set_boot
    monkeypatch.setattr(
        MountingSession, "set_boot", lambda self, override: (chosen.append(override), real(self, override))[1]
    )
    bed.bmc.drives, bed.ramdisk = drives, {"boot": boot, "url": "" if boot == "network" else RAMDISK["url"]}
    host = bed.enrolled()
    assert (bed.guest.boots, bed.bmc.state, bed.inserted()) == (["ramdisk"], PowerState.OFF, [])
    assert [(one.device, one.uri, one.once) for one in chosen] == [(boot, bed.ramdisk["url"], True)]
    bed.destroyed(host)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"boot": "http"}, "boot: http requires url"), ({}, "boot: medium requires url"),
     ({"boot": "network", **RAMDISK}, "url must be empty"), ({"boot": "floppy", **RAMDISK}, "'medium', 'http'")],
)  # fmt: skip
def test_a_ramdisk_that_cannot_be_found_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Config(credential="c", ramdisk=given, images={"a": IMAGE})


def test_a_medium_that_the_bmc_loses_is_noticed_before_the_machine_is_switched_on(bed):
    bed.bmc.loses_media = True
    answer = failure(bed.enrol())
    assert answer.message == "The BMC accepted to insert a medium into CD1, but reports the drive as empty."
    assert not bed.guest.boots
    assert bed.bmc.state is PowerState.OFF


def test_a_boot_override_that_has_no_effect_is_noticed(bed, monkeypatch):
    monkeypatch.setattr(MountingSession, "set_boot", lambda self, override: None)
    answer = failure(bed.enrol())
    assert answer.message == "The BMC accepted medium as the boot device, but reports no boot device."
    assert not bed.guest.boots


def test_an_override_that_lasts_is_removed_with_the_media(bed, monkeypatch):
    real = MountingSession.set_boot
    monkeypatch.setattr(
        MountingSession, "set_boot",
        lambda self, override: real(self, BootOverride(device=override.device, once=False)),
    )  # fmt: skip
    host = bed.enrolled()
    assert bed.bmc.override is None
    bed.destroyed(host)


def test_a_disk_that_cannot_be_erased_keeps_the_machine_closed_and_is_named(bed):
    host = bed.enrolled()
    lease = bed.active(host)
    host, over = bed.ended(lease)
    (bed.guest.disks.root / "sys/block/vda/ro").write_text("1\n")
    outcome = bed.run("clean", host, over)
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code) == ("erase", "operator", "not_erased")
    assert "vda (" in answer.message
    assert "disk-1" in answer.message
    assert [(one.disk, one.verified) for one in answer.erasures] == [("vda", False)]
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    (bed.guest.disks.root / "sys/block/vda/ro").write_text("0\n")
    bed.destroyed(bed.ready("clean", host, over).spec.resource)


def test_what_cannot_be_removed_outside_of_the_disks_keeps_the_machine_closed(bed):
    disks = bed.guest.disks
    (disks.root / "sys/class/tpm/tpm0").mkdir(parents=True)
    (disks.root / "sys/firmware/efi/efivars").mkdir(parents=True)
    disks.double("tpm0", {"locked": ["l", "p"]})
    outcome = bed.enrol()
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code) == ("erase", "operator", "not_removed")
    assert "The TPM was not cleared: ERROR: Esys_Clear(0x98E)" in answer.message
    assert "Boot entries were not removed: The variables of the firmware cannot be read" in answer.message
    assert [(one.disk, one.verified) for one in answer.erasures] == [("vda", True)]
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    bed.ramdisk = {"outside_disks": "report"}
    reported = bed.enrol()
    assert reported.ended == "ready"
    (log,) = [call.answer.log for call in reported.calls if getattr(call.answer, "erasures", ())]
    assert "The TPM was not cleared" in log
    assert "Boot entries were not removed" in log


def test_firmware_that_a_tenant_changed_keeps_the_machine_closed(bed):
    bed.ramdisk = {"firmware_ignored": ["Sys*"], "first_cleaning": False}
    host, over = bed.ended(bed.active(bed.enrolled()))
    bed.bmc.bios |= {"TurboMode": "Disabled", "SysTime": "2"}
    bed.bmc.secure_boot = False
    outcome = bed.run("clean", host, over)
    answer = failure(outcome)
    assert (outcome.step, answer.code) == ("firmware", "firmware_changed")
    assert "TurboMode is Disabled, and was Enabled; Secure Boot is off, and was on." in answer.message
    assert "SysTime" not in answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])


def test_a_job_is_taken_up_again_and_started_once(bed):
    host = bed.enrolled()
    seen = [call for call in bed.run("activate", host, bed.lease(host)).calls if call.step == "write"]
    waits = [call.answer for call in seen if isinstance(call.answer, Wait)]
    assert waits[0].memo == {"started": True}
    assert all(0 <= wait.percent <= 100 for wait in waits if wait.percent is not None)
    assert waits[0].sentence == "small is being written."


def test_the_medium_of_a_boot_is_served_until_the_ramdisk_answers(bed):
    host = bed.resource()
    keys = bed.driver().run(plans.into_ramdisk()[:1], bed.spec("build", host)).spec.resource
    iso, stick = BareMetal().media(keys)
    assert (iso.name, stick.name, iso.token) == ("boot.iso", "boot.img", stick.token)
    said = json.loads(iso_files(iso.content())["boot.json"])
    assert said["network"] == {"dhcp": True}
    assert " ".join(said["authorized_keys"]) == " ".join(bed.guest.control.public.split()[:2])
    assert said["host_key"] not in str(keys.facts)
    booted = bed.driver().run(plans.into_ramdisk()[1:], bed.spec("build", keys)).spec.resource
    assert BareMetal().media(booted) == ()


def test_a_static_network_is_on_the_medium_and_in_the_seed(bed, monkeypatch):
    about = {"gateway": "127.0.0.1", "dns": ["127.0.0.53"], "mac": "02:00:00:00:00:01"}
    static = {"address": f"{bed.guest.address}/8", **about}
    real = bed.registration()
    monkeypatch.setattr(bed, "registration", lambda: {**real, "ramdisk_network": static})
    bed.active(bed.enrolled())
    medium = json.loads((bed.guest.folder / "medium/boot.json").read_text())
    assert medium["network"] == static
    network = (bed.guest.disks.root / "run/systemd/network/10-drydock.network").read_text()
    assert f"MACAddress=02:00:00:00:00:01\n\n[Network]\nAddress={bed.guest.address}/8\nGateway=127.0.0.1\n" in network
    port = json.loads(bed.guest.seed()["network-config"])["ethernets"]["drydock0"]
    assert (port["match"], port["addresses"]) == ({"macaddress": static["mac"]}, [static["address"]])


def config(**given: Any) -> Json:
    return {"credential": "c", "ramdisk": RAMDISK, "images": {"small": IMAGE}, **given}


def test_a_config_with_a_ramdisk_leaves_idle_machines_off_and_has_one_lease_at_a_time():
    made = Config.model_validate(config())
    assert (made.idle_power, made.one_at_a_time, made.isolation, made.image_name) == ("off", True, "machine", "small")
    assert BareMetal().cleans_apart(made)
    plain = Config.model_validate({"credential": "c"})
    assert (plain.idle_power, plain.one_at_a_time) == ("on", False)
    assert not BareMetal().cleans_apart(plain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (config(idle_power="on"), "ramdisk requires idle_power: off"),
        (config(images={}), "ramdisk requires images"),
        (config(default_image="large"), "default_image is none of the images small"),
        (config(ramdisk=None), "images requires a ramdisk"),
        (config(ramdisk={"url": "ftp://10.0.0.1/a.iso"}), "String should match pattern"),
        (config(ramdisk={"url": "http://user:secret@10.0.0.1/a.iso"}), "String should match pattern"),
        (config(images={"small": {**IMAGE, "sha256": "a"}}), "String should match pattern"),
        (config(images={"small": {**IMAGE, "format": "vmdk"}}), "Input should be 'raw'"),
        (config(images={"small": {**IMAGE, "ca": "not PEM"}}), "Must be certificates as PEM text"),
    ],
)
def test_a_config_that_cannot_work_is_refused(given, said):
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(given)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_user_data_needs_an_image_that_reads_it():
    with pytest.raises(ValidationError, match="user_data requires image"):
        BareMetalRequirements.model_validate({"user_data": {"packages": ["git"]}})


@pytest.mark.parametrize(
    ("config_", "more", "field"),
    [({"credential": "c"}, {}, "host_keys"), (config(), {"slots": 2}, "slots")],
)
def test_a_registration_that_does_not_fit_the_blueprint_is_refused(config_, more, field):
    bmc = {"driver": "scripted", "address": "b"}
    given = BareMetal.Registration.model_validate({"address": "10.0.0.7", "bmc": bmc, **more})
    with pytest.raises(InvalidRequest) as caught:
        BareMetal().register(Config.model_validate(config_), given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"address": "10.0.0.7"}, "Write an address with its prefix"),
        ({"address": "10.0.0.7/24", "gateway": "x"}, "Write an IP address"),
        ({"address": "10.0.0.7/24", "mac": "52:54"}, "String should match pattern"),
    ],
)
def test_a_wrong_network_of_the_ramdisk_is_refused(network, said):
    bmc = {"driver": "scripted", "address": "b"}
    with pytest.raises(ValidationError) as caught:
        BareMetal.Registration.model_validate({"address": "10.0.0.7", "bmc": bmc, "ramdisk_network": network})
    assert said in str(caught.value)
