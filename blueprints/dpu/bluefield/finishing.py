"""The last steps of a DPU: the login with its pinned key, the restart of its host, and what was found on it."""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

from blueprints.accounts import actions as accounts
from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Hold, Json, Maintenance, Need, Ready, Scope, Wait
from blueprints.bluefield.access import bmc_told
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.preparing import HOST, card_of
from blueprints.hostshell import told
from blueprints.specs import Spec
from blueprints.userdata import FIRST_BOOT
from drydock.core import clock
from interfaces.errors import (
    AuthenticationRefused,
    CommandFailed,
    ConnectionLost,
    DeadlineExceeded,
    HostKeyMismatch,
    Unreachable,
)

_LOOK = 5.0
_STARTING = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused, HostKeyMismatch)
"""Errors while the DPU starts. Until it runs the new system, another host key answers, to which nothing is sent."""
_QUERY = 'for device in /dev/mst/mt*_pciconf0; do mlxfwreset -d "$device" q 2>/dev/null; break; done'
_LEVEL = re.compile(r"^\s*([3-5])\s*:.*-\s*Supported\b", re.MULTILINE)
"""A level of reset that the firmware offers: 3 driver restart and PCI reset, 4 warm reboot, 5 power cycle."""
Restart = Literal["reboot", "power_cycle"]


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Wait until the DPU accepts our login with its pinned host key and its first boot has finished."""
    config: Config = spec.config
    began = memo.get("began") or clock.now().isoformat()
    try:
        script = "echo done" if config.ready_by == "ssh" else FIRST_BOOT
        said, _, further = shell(spec, at_most=10.0).run(script).strip().partition("\n")
    except _STARTING as error:
        said, further = "silent", error.message
    if said == "done":
        return Ready(log="reached over SSH with the pinned host key")
    if said == "absent":
        message = "The image does not have cloud-init. Set ready_by: ssh in the blueprint, or choose another image."
        return Failed(scope=Scope.BLUEPRINT, code="no_cloud_init", message=message)
    if said == "error":
        return Failed(scope=Scope.BLUEPRINT, code="cloud_init", message=f"cloud-init failed: {further}"[:1500])
    waited = (clock.now() - dt.datetime.fromisoformat(began)).total_seconds()
    sentence = further or "Its first boot has not finished."
    if waited > config.boot_limit:
        message = f"The DPU at {spec.resource.facts['address']} was not ready within {waited:.0f} s. {sentence}"
        return Failed(scope=Scope.OFFER, code="not_reached", message=message[:1500])
    return Wait(after=_LOOK, memo={"began": began}, percent=80, sentence=f"The DPU starts. {sentence}"[:500])


def reported(said: str) -> Restart:
    """Return the restart of the host that the firmware reports. Without a report, the strongest one."""
    levels = set(_LEVEL.findall(said))
    return "reboot" if levels & {"3", "4"} else "power_cycle"


@told
def choose_restart(spec: Spec, memo: Json) -> Answer:
    """Read which restart of its host the card needs, where the config leaves it to the firmware."""
    config: Config = spec.config
    if config.reboot != "reported":
        return Ready(facts={"restart": config.reboot})
    try:
        said = shell(spec).as_root(_QUERY)
    except CommandFailed:
        said = ""
    return Ready(facts={"restart": reported(said)})


@bmc_told
def restart_host(spec: Spec, memo: Json) -> Answer:
    """Restart the host, once for all cards in it that wait, so that it uses the new firmware and image."""
    action = spec.resource.facts["restart"]
    card = card_of(spec)
    if action == "none":
        return Ready()
    sentence = f"Card {card.name} needs a restart of its host to use its new image."
    if card.part_of:
        wanted = Maintenance(relation=HOST, action=action, holders="wait", sentence=sentence)
        return Ready() if wanted.name in spec.granted else Need(maintenance=wanted)
    if spec.resolution is None:
        what = f"{'Reboot' if action == 'reboot' else 'Power-cycle'} the host of card {card.name}, then answer yes."
        return Hold(who="operator", what=what)
    if not spec.resolution.yes:
        message = f"The host was not restarted: {spec.resolution.text}".rstrip(": ")
        return Failed(scope=Scope.OPERATOR, code="not_rebooted", message=message)
    return Ready()


@told
def observe(spec: Spec, memo: Json) -> Answer:
    """Record what the DPU says about itself."""
    return Ready(facts=accounts.observe(spec))
