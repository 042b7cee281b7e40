"""The kind `bluefield_card`: BlueField cards that are registered with their own BMC, each part of its host.

Drydock logs in to the BMC by Redfish over TLS and needs no Kubernetes. The build enrols the card, and installs nothing
on it. A card without a BMC is known by its registration only, and is installed by rshim from its host.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections.abc import Sequence
from typing import ClassVar

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, Ready
from blueprints.bluefield.access import PIN, REFUSED, UNREACHABLE, where
from blueprints.bluefield.cards import BMC, RSHIM
from blueprints.bluefield.logins import LONGEST, SHORTEST
from blueprints.contract import Act, Checks, Kind, Plan, Registers, Step, Updates
from blueprints.dpu.bluefield_card import config as schema
from blueprints.dpu.bluefield_card import enrolment, health
from blueprints.hostshell import told
from blueprints.identities import OF_BMC, real
from blueprints.specs import BlueprintView, Draft, Problem, Spec

_PATIENT = 3600.0
"""Seconds for a step with logins, which may have to wait until the BMC may be asked again."""


def drafted(given: schema.Registration) -> Draft:
    """Return the draft for a registration."""
    bmc = {OF_BMC: f"redfish {where(given.bmc)}"} if given.bmc is not None else {}
    return Draft(
        name=given.name or given.serial, identity=given.serial, identities=real({"serial": given.serial, **bmc}),
        attributes={"serial": given.serial, "via": BMC if bmc else RSHIM}, capacity=Amounts(slots=1),
    )  # fmt: skip


@told
def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the current registration. Calls no BMC."""
    draft = drafted(schema.Registration.model_validate(spec.resource.registration))
    return Ready(attributes=draft.attributes)


def _of_bmc(name: str, act: Act) -> Step:
    return Step(name=name, act=act, deadline=_PATIENT, exclusive=True)


class BluefieldCard(Kind, Registers, Checks, Updates):
    """Registered cards with their own BMC."""

    name: ClassVar[str] = "bluefield_card"
    resource_type: ClassVar[str] = "dpu_card"
    Config = schema.Config
    Requirements = schema.Requirements
    Attributes = schema.Attributes
    Registration = schema.Registration
    OwnCredential = schema.OwnCredential
    matches = schema.MATCHES
    at_once: ClassVar[bool] = True
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=2)
    operator_facts: ClassVar[frozenset[str]] = frozenset(
        {PIN, REFUSED, "bmc_certificate", enrolment.PASSWORD, "replace_password"}
    )
    unreachable: ClassVar[frozenset[str]] = UNREACHABLE

    def register(self, config: schema.Config, given: schema.Registration) -> Draft:
        """Return the draft for a registered card. Calls no BMC."""
        return drafted(given)

    def build(self) -> Plan:
        """Return the plan that enrols the card: trusted, logged in, with a password of its own, and inspected."""
        return (
            Step(name="lock", act=enrolment.lock),
            _of_bmc("certificate", enrolment.trust),
            _of_bmc("login", enrolment.log_in),
            Step(name="choose_password", act=enrolment.choose_password),
            _of_bmc("password", enrolment.replace_password),
            _of_bmc("inspect", enrolment.inspect),
            Step(name="host", act=enrolment.place),
            Step(name="host_known", act=enrolment.check_place),
        )

    def update(self) -> Plan:
        """Return the plan that applies the current config and registration, and enrols the card again."""
        return (Step(name="apply", act=apply), *self.build())

    def check(self) -> Plan:
        """Return the plan that reads by the BMC whether it is the same card and healthy."""
        return (Step(name="look", act=health.look, exclusive=True),)

    def destroy(self) -> Plan:
        """Return the plan that hands the card back, with a password that people know."""
        return (_of_bmc("hand_back", enrolment.hand_back),)

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the credentials exist and that Redfish can be used. Calls no BMC."""
        found = []
        for field in ("bmc_credential", "return_credential"):
            name = getattr(blueprint.config, field)
            if name and name not in blueprint.credentials:
                found.append(Problem(message=f"Credential {name!r} does not exist.", field=field))
        chosen = blueprint.credentials.get(blueprint.config.return_credential, {}).get("password")
        if chosen is not None and not SHORTEST <= len(chosen) <= LONGEST:
            limits = f"{SHORTEST} to {LONGEST}"
            found.append(Problem(message=f"A BMC accepts passwords of {limits} characters.", field="return_credential"))
        if importlib.util.find_spec("sushy") is None:
            found.append(Problem(message="The extra redfish is not installed.", field="kind"))
        return found
