"""Steps that boot a host into the ramdisk, and out of it again.

For each boot there is a medium with a new host key, the key of the control account, a secret and the network. Drydock
serves it to the BMC as a virtual medium of its own, so that the ramdisk itself is the same for all hosts, whether it
boots from another virtual medium, by UEFI HTTP boot or by PXE. The power, the
media and the boot override are read back, and the host key proves which system has booted. The media are ejected before
each boot, after it, and if it fails.
"""

from __future__ import annotations

import datetime as dt
import hmac
import json
import logging
import secrets
from collections.abc import Sequence

from blueprints.accounts.access import control_key
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal import network, ramdisk_agent
from blueprints.baremetal.config import Config
from blueprints.baremetal.power import bring, kept_off
from blueprints.baremetal.ramdisk_agent import FACT, USER, AgentRefused
from blueprints.baremetal.registration import registration_of
from blueprints.baremetal.sessions import bmc_told, patience, session, since, whole
from blueprints.bmc.contract import Bmc, Boots, Mounts
from blueprints.bmc.errors import BmcError, BmcLacks
from blueprints.bmc.values import BootDevice, BootOverride, Medium, PowerState
from blueprints.contract import ServedMedium
from blueprints.hostshell import NeedsOperator
from blueprints.media import iso_image
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from drydock.core.errors import NotSupported
from interfaces.errors import AuthenticationRefused, ConnectionLost, DeadlineExceeded, HostKeyMismatch, Unreachable
from interfaces.keys import new_key_pair, public_line

logger = logging.getLogger(__name__)

LABEL = "DRYDOCK"
"""Label of the medium, by which the ramdisk finds it."""
SILENT = "ramdisk_silent"
"""Code of a failure: the ramdisk did not accept a login in time."""
_DEVICES = {"medium": BootDevice.MEDIUM, "http": BootDevice.HTTP, "network": BootDevice.NETWORK}
_LOOK = 1.5  # as in `power`: less than the interval of the sweep
_MARGIN = 900.0
"""Seconds for which a medium can be fetched beyond the time in which the ramdisk must answer."""
BOOTING = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused)
"""Errors of a machine whose SSH server is not ready yet. A wrong host key is not among them."""


def forgotten() -> Json:
    """Return the facts of a host that no longer has the operating system that was deployed, or none yet."""
    return {"host_keys": [], "image": None, "rescue": None}


def new_boot(spec: Spec, memo: Json) -> Answer:
    """Make the keys and secrets of the next boot of the ramdisk. They are stored before the BMC is called."""
    return _new_boot(spec, extra=())


def new_rescue(spec: Spec, memo: Json) -> Answer:
    """Make the keys and secrets of a boot whose ramdisk also accepts the keys of the lease's owner."""
    keys = [key for facts in spec.resource.lease_facts() for key in _keys_of(facts)]
    return _new_boot(spec, extra=keys)


def _keys_of(facts: Json) -> list[str]:
    """Return the public keys of an active lease, without comments: the one that was made for it, and its owner's."""
    made = str(facts.get("public_key") or "")
    return [*([" ".join(made.split()[:2])] if made else []), *facts.get("owner_keys", [])]


def _new_boot(spec: Spec, extra: Sequence[str]) -> Answer:
    config: Config = spec.config
    if config.ramdisk is None:
        return Failed(scope=Scope.OPERATOR, code=NeedsOperator.code, message="The blueprint has no ramdisk.")
    if attached := network.left_behind(spec):
        return attached
    try:
        spec.resource.medium_url("boot.iso", "")
    except NotSupported as error:
        return Failed(scope=Scope.OPERATOR, code=NeedsOperator.code, message=str(error))
    pair = new_key_pair("ramdisk")
    seconds = config.ramdisk.boot_timeout + 2 * config.power_timeout + config.shutdown_timeout + _MARGIN
    until = clock.now() + dt.timedelta(seconds=seconds)
    facts = {"boot": secrets.token_hex(8), "host_key": pair.public, "until": until.isoformat(), "keys": list(extra)}
    hidden = {"host_private": pair.private, "secret": secrets.token_urlsafe(24), "token": secrets.token_urlsafe(24)}
    return Ready(resource_facts={FACT: facts}, resource_secrets={FACT: hidden})


def media(resource: ResourceView) -> Sequence[ServedMedium]:
    """Return the medium of the present boot, under the names that drives for CDs and for USB sticks accept."""
    facts, hidden = resource.facts.get(FACT), resource.secrets.get(FACT)
    if not facts or not hidden:
        return ()
    until = dt.datetime.fromisoformat(facts["until"])
    return [
        ServedMedium(name=name, token=hidden["token"], expires_at=until, content=lambda: _medium(resource))
        for name in ("boot.iso", "boot.img")
    ]


def _medium(resource: ResourceView) -> bytes:
    """Return the image with the settings of the present boot."""
    facts, hidden = resource.facts[FACT], resource.secrets[FACT]
    static = registration_of(resource).ramdisk_network
    settings = {
        "version": 1, "boot": facts["boot"], "secret": hidden["secret"], "hostname": resource.key,
        "host_key": hidden["host_private"],
        "authorized_keys": [public_line(control_key(resource)), *facts["keys"]],
        "network": {"dhcp": True} if static is None else static.model_dump(mode="json"),
    }  # fmt: skip
    return iso_image(LABEL, {"boot.json": json.dumps(settings, indent=1).encode()})


@bmc_told
def boot(spec: Spec, memo: Json) -> Answer:
    """Switch the host off, insert the media, choose what it boots from next, and switch it on."""
    if spec.phase == "activate" and (kept := kept_off(spec)):
        return kept
    stage = memo.get("stage", "off")
    seconds = whole(spec) if stage == "media" else patience(spec)
    with session(spec.resource, seconds) as bmc:
        if stage == "off":
            waits = bring(bmc, spec, {**memo, "stage": "off"}, PowerState.OFF, at_once=spec.act != "rescue")
            return waits or _next("media", "The host is off.")
        if stage == "media":
            if bmc.power() is not PowerState.OFF:
                return _next("off", "The host was switched on meanwhile.")
            return _prepare(bmc, spec) or _next("on", "The media are inserted.")
        waits = bring(bmc, spec, memo, PowerState.ON)
    return waits or Ready(power="on", log="The host boots the ramdisk.")


def _next(stage: str, sentence: str) -> Wait:
    return Wait(after=0.0, memo={"stage": stage}, sentence=sentence)


def _prepare(bmc: Bmc, spec: Spec) -> Failed | None:
    """Insert the media of a host that is off, and choose the boot device. Return a failure if that has no effect."""
    ramdisk = spec.config.ramdisk
    if not isinstance(bmc, Mounts) or not isinstance(bmc, Boots):
        raise BmcLacks("The BMC of this host cannot insert a virtual medium, which the ramdisk requires.")
    token = spec.resource.secrets[FACT]["token"]
    drives = _drives(bmc.media()) if ramdisk.boot == "medium" else [_drive_of_settings(bmc.media())]
    _eject_all(bmc)
    settings = drives[-1]
    bmc.insert(settings.slot, spec.resource.medium_url("boot.iso" if settings.cd else "boot.img", token))
    for drive in drives[:-1]:
        bmc.insert(drive.slot, ramdisk.url)
    there = {one.slot for one in bmc.media() if one.inserted}
    if missing := [one.slot for one in drives if one.slot not in there]:
        message = f"The BMC accepted to insert a medium into {missing[0]}, but reports the drive as empty."
        return Failed(scope=Scope.STEP, code="medium", message=message)
    return _choose(bmc, _DEVICES[ramdisk.boot], ramdisk.url)


def _choose(bmc: Boots, device: BootDevice, url: str) -> Failed | None:
    """Choose what the host boots from next, and read it back."""
    bmc.set_boot(BootOverride(device=device, uri=url if device is BootDevice.HTTP else ""))
    chosen = bmc.boot()
    if chosen is not None and chosen.device is device:
        return None
    now = "no boot device" if chosen is None else str(chosen.device)
    message = f"The BMC accepted {device} as the boot device, but reports {now}."
    return Failed(scope=Scope.STEP, code="boot_device", message=message)


def _drive_of_settings(there: Sequence[Medium]) -> Medium:
    """Return the drive for the settings of a ramdisk that boots over the network. Raises BmcLacks."""
    if not there:
        raise BmcLacks("The BMC of this host has no virtual drive. The ramdisk needs one for its keys and network.")
    return next((one for one in there if not one.cd), there[0])


def _drives(there: Sequence[Medium]) -> list[Medium]:
    """Return the drive for the ramdisk and the one for its settings. Raises BmcLacks."""
    cds = [one for one in there if one.cd]
    others = [one for one in there if not one.cd]
    if not cds:
        raise BmcLacks("The BMC of this host has no virtual CD drive, from which the ramdisk boots.")
    if len(there) < 2:
        raise BmcLacks(
            f"The BMC of this host has one virtual drive only ({cds[0].slot}). The ramdisk needs a second one, for its "
            "keys and its network. Some BMCs have more drives with a licence or a setting for virtual media. One drive "
            "is enough if ramdisk.boot is http or network."
        )
    return [cds[0], (*cds[1:], *others)[0]]


def _eject_all(bmc: Bmc) -> None:
    assert isinstance(bmc, Mounts)
    for one in bmc.media():
        if one.inserted:
            bmc.eject(one.slot)


@bmc_told
def reach(spec: Spec, memo: Json) -> Answer:
    """Wait until the ramdisk of this very boot accepts our login. Then its medium is served no longer."""
    begun = memo.get("on_at") or clock.now().isoformat()
    try:
        shown = ramdisk_agent.call(spec.resource, "boot", "show", seconds=min(spec.deadline, 10.0))
        _check_boot(spec.resource, shown)
        return Ready(resource_secrets={FACT: {}}, log="The ramdisk answers with the host key that was made for it.")
    except HostKeyMismatch:
        why = "another system answers at its address, so it booted from another device"
    except BOOTING as error:
        why = error.message.rstrip(".")
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))
    waited, limit = since(begun), spec.config.ramdisk.boot_timeout
    if waited >= limit:
        message = f"The ramdisk did not accept a login within {limit:.0f} s: {why}."
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=SILENT, message=message))
    sentence = f"The ramdisk is booting: {why}."[:500]
    return Wait(after=_LOOK, memo={"on_at": begun}, percent=min(99, int(100 * waited / limit)), sentence=sentence)


def _check_boot(resource: ResourceView, shown: Json) -> None:
    expected = resource.secrets.get(FACT, {}).get("secret")
    if expected is not None and not hmac.compare_digest(str(shown.get("secret")).encode(), expected.encode()):
        raise AgentRefused("boot", "The ramdisk shows another secret than the one on the medium of this boot.")


def abandoned(spec: Spec, failure: Failed) -> Failed:
    """Eject the media and cut the power after a failure in the ramdisk, as far as the BMC allows it now.

    What cannot be done now is done by the next phase, which begins with it or ends with it.
    """
    try:
        with session(spec.resource, whole(spec) / 2) as bmc:
            if isinstance(bmc, Mounts):
                _eject_all(bmc)
            if bmc.power() is not PowerState.OFF:
                bring(bmc, spec, {}, PowerState.OFF, at_once=True)
    except (BmcError, NeedsOperator) as error:
        logger.warning("%s: the media could not be ejected after a failure: %s", spec.resource.key, error)
    return failure


@bmc_told
def leave(spec: Spec, memo: Json) -> Answer:
    """Switch the host off, read its power back, eject all media and remove the boot override."""
    gone = {FACT: None, **forgotten()}
    return _stopped(spec, memo) or Ready(
        power="off", resource_facts=gone, resource_secrets={FACT: {}}, log="The host is off, without media."
    )


@bmc_told
def halt(spec: Spec, memo: Json) -> Answer:
    """Switch the host off before it is moved to another network, as `leave` does, but forget nothing about its boot."""
    if spec.phase == "activate" and (kept := kept_off(spec)):
        return kept
    return _stopped(spec, memo) or Ready(power="off")


def _stopped(spec: Spec, memo: Json) -> Answer | None:
    """Switch the host off, eject its media and remove the boot override. Return None once that is done."""
    with session(spec.resource, patience(spec) if spec.phase in ("activate", "deactivate") else whole(spec)) as bmc:
        waits = bring(bmc, spec, memo, PowerState.OFF, at_once=True)
        if waits is None:
            clear(bmc)
    return waits


def clear(bmc: Bmc) -> None:
    """Eject all media, and remove a boot override that has not been used."""
    if isinstance(bmc, Mounts):
        _eject_all(bmc)
    if isinstance(bmc, Boots) and bmc.boot() is not None:
        bmc.set_boot(BootOverride(device=BootDevice.DEFAULT))


@bmc_told
def to_disk(spec: Spec, memo: Json) -> Answer:
    """Switch the host off, eject the media, and boot from its disk."""
    stage = memo.get("stage", "off")
    with session(spec.resource, whole(spec)) as bmc:
        if stage == "off":
            if waits := bring(bmc, spec, {**memo, "stage": "off"}, PowerState.OFF, at_once=True):
                return waits
            clear(bmc)
            if isinstance(bmc, Boots):
                bmc.set_boot(BootOverride(device=BootDevice.DISK))
            return _next("on", "The host is off, and boots from its disk next.")
        waits = bring(bmc, spec, memo, PowerState.ON)
    gone = {FACT: None, "rescue": None, "switched_on_at": clock.now().isoformat()}
    return waits or Ready(power="on", resource_facts=gone, resource_secrets={FACT: {}}, log="It boots from its disk.")


def end_rescue(spec: Spec, memo: Json) -> Answer:
    """Boot a host that is in a rescue from its disk. Any other host is left as it is."""
    facts = spec.resource.facts
    if not memo and not facts.get("rescue") and not facts.get(FACT):
        return Ready(log="The host does not run the ramdisk.")
    return to_disk(spec, memo)


@bmc_told
def rescued(spec: Spec, memo: Json) -> Answer:
    """Eject the media, so that the next start is from the disk, and record how the owner logs in to the ramdisk."""
    with session(spec.resource, whole(spec)) as bmc:
        clear(bmc)
    there = spec.resource.facts[FACT]
    address = ramdisk_agent.address(spec.resource)
    about = {"address": address, "port": spec.config.ramdisk.port, "user": USER, "host_key": there["host_key"]}
    log = f"Log in with ssh -p {about['port']} {USER}@{address}. The host key is {there['host_key']}."
    return Ready(resource_facts={"rescue": about}, log=log)
