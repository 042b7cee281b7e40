"""The kind `bluefield`: DPUs that Drydock installs on leased cards by their BMCs or by rshim, without Kubernetes."""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections.abc import Sequence
from typing import ClassVar

from blueprints.accounts import actions as accounts
from blueprints.accounts.kind import LONG, WithAccounts
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, NeededLease
from blueprints.bluefield.dpus import MATCHES, DpuAttributes, DpuRequirements, of_card
from blueprints.contract import Act, Builds, Carried, Plan, Step
from blueprints.dpu.bluefield import config as schema
from blueprints.dpu.bluefield import finishing, flashing, host, https, preparing, publishing, scp, streaming
from blueprints.hosts import HOST
from blueprints.matching import misses
from blueprints.specs import Asked, BlueprintView, Draft, Problem, Spec

_WEEK = 7 * 86_400.0
_DAY = 86_400.0
_PATIENT = 3600.0
"""Seconds for a step with logins, which may have to wait until the BMC may be asked again."""


def _of_bmc(name: str, act: Act, deadline: float = _PATIENT) -> Step:
    return Step(name=name, act=act, deadline=deadline, exclusive=True)


def _own(spec: Spec, memo: Json) -> Answer:
    """Prepare the one who fetches the image: the host gets the rshim, or the BMC gets access to the server.

    One step serves all routes, because a build that began with an older version goes on at the same place of the plan.
    """
    if preparing.by_rshim(spec):
        return streaming.own(spec, memo)
    return scp.exchange_keys(spec, memo) if preparing.by_scp(spec) else https.trust_webroot(spec, memo)


def _is_switched_off(config: schema.Config) -> bool:
    return config.park == "power_off"


class Bluefield(WithAccounts, Builds, Carried):
    """A DPU on one card, with an account for each lease."""

    name: ClassVar[str] = "bluefield"
    resource_type: ClassVar[str] = "dpu"
    Config, Requirements, Attributes = schema.Config, DpuRequirements, DpuAttributes
    matches = MATCHES
    needs: ClassVar[tuple[str, ...]] = (preparing.CARD_TYPE, publishing.WEBROOT_TYPE, HOST)
    idle_timeout: ClassVar[dt.timedelta | None] = None
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    operator_facts: ClassVar[frozenset[str]] = frozenset(
        {
            "task",
            https.TRUSTED,
            flashing.RSHIM,
            "image_bytes",
            preparing.ROUTE,
            preparing.FOLDER,
            streaming.ENDED,
            streaming.FORCED,
        }
    )

    def drafts(self, config: schema.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return the DPU that the config describes, if it can meet the request. Its card is found by the build."""
        promised: Json = {**flashing.installed(config), **preparing.wanted_card(config)}
        attributes = {name: promised[name] for name in DpuAttributes.model_fields if promised.get(name) is not None}
        if asked is None:
            return [Draft(attributes=attributes, capacity=Amounts(slots=1))]
        # What only the card decides is promised: the build leases a card that has it.
        draft = Draft(attributes={**of_card(asked.requirements), **attributes}, capacity=Amounts(slots=1))
        fits = asked.amounts.fits_in(draft.capacity)
        return [draft] if fits and not misses(MATCHES, draft.attributes, asked.requirements.model_dump()) else []

    def carrier(self, config: schema.Config, asked: Asked | None) -> NeededLease:
        """Return the lease of the card."""
        return preparing.lease_of_card(config, asked)

    def build(self) -> Plan:
        """Return the plan that publishes image and bf.cfg, installs them by BMC or rshim, and restarts the host."""
        return (
            Step(name="image", act=publishing.look_at_image),
            Step(name="card", act=preparing.have_card, deadline=_WEEK),
            Step(name="lock", act=preparing.lock_card),
            Step(name="compatible", act=preparing.check_compatible),
            Step(name="decide", act=preparing.decide),
            Step(name="route", act=preparing.choose_route),
            Step(name="host", act=host.have_host, deadline=_WEEK),
            Step(name="webroot", act=publishing.have_webroot, deadline=_WEEK),
            _of_bmc("protocol", flashing.check_protocol),
            Step(name="folder", act=host.make_folder),
            Step(name="publish", act=publishing.publish, deadline=LONG),
            Step(name="hold", act=preparing.hold_host, deadline=_WEEK),
            _of_bmc("rshim_before", flashing.note_rshim),
            _of_bmc("rshim", flashing.take_rshim),
            _of_bmc("own", _own),
            # Its own limit is in the config.
            Step(
                name="flash", act=flashing.flash, find=flashing.find_flash, interruptible=False, deadline=2 * _DAY,
                exclusive=True,
            ),
            Step(name="unpublish", act=publishing.unpublish),
            Step(name="give_back", act=streaming.give_back),
            _of_bmc("running", flashing.wait_until_running, _DAY),
            Step(name="reach", act=finishing.reach, deadline=_DAY),
            Step(name="restart", act=finishing.choose_restart),
            Step(name="reboot", act=finishing.restart_host, deadline=_WEEK),
            _of_bmc("versions", flashing.verify_versions, _DAY),
            Step(name="reach_again", act=finishing.reach, deadline=_DAY),
            Step(name="observe", act=finishing.observe),
            Step(name="prepare", act=accounts.prepare),
        )  # fmt: skip

    def destroy(self) -> Plan:
        """Return the plan that waits for a running installation and for the host, and switches the card off."""
        return (
            Step(name="host", act=flashing.lease_host, deadline=_WEEK),
            _of_bmc("flash", flashing.wait_for_flash, 2 * _DAY),
            Step(name="vacate", act=flashing.vacate, deadline=_WEEK, applies=_is_switched_off),
            _of_bmc("park", flashing.park, _WEEK),
            _of_bmc("rshim", flashing.leave_rshim, _WEEK),
        )

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check credentials and that Redfish can be used. Calls neither card nor host."""
        found = list(super().check_blueprint(blueprint))
        name = blueprint.config.password_credential
        if name and name not in blueprint.credentials:
            found.append(Problem(message=f"Credential {name!r} does not exist.", field="password_credential"))
        if importlib.util.find_spec("sushy") is None:
            found.append(Problem(message="The extra redfish is not installed.", field="kind"))
        return found
