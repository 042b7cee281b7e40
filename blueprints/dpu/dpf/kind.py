"""The kind `dpf`: DPUs that DPF installs, on cards that are leased for life.

A DPU is a card with an image, a flavor and a place in a DPU cluster. Its card, image and cluster are leases of the DPU,
so cards are one pool for many blueprints.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, NeededLease
from blueprints.bluefield.dpus import MATCHES, DpuAttributes, DpuRequirements, of_card
from blueprints.contract import (
    Activates,
    Builds,
    Carried,
    Checks,
    HandsOver,
    Kind,
    Lists,
    Opener,
    Plan,
    Step,
    Updates,
    Watches,
)
from blueprints.dpf import deployments as deployment_objects
from blueprints.dpf import owned, watches
from blueprints.dpf.credentials import KIND as CREDENTIAL
from blueprints.dpf.permissions import allows
from blueprints.dpf.phases import LIMIT
from blueprints.dpu.dpf import (
    actions,
    checking,
    deploying,
    drift,
    health,
    leasing,
    parking,
    provisioning,
    revocation,
    updating,
)
from blueprints.dpu.dpf import config as schema
from blueprints.dpu.dpf.services import open_services
from blueprints.matching import misses
from blueprints.specs import Asked, BlueprintView, Draft, LeaseView, Owned, Problem, Spec
from blueprints.watches import Ending, WatchNews, WatchPlace
from interfaces.dpu_services import DpuServices

_LONG = 7 * 86_400.0
_WAKING = 900.0
_WATCHED = ("DPU", "DPUSet", "DPUFlavor", *leasing.KINDS, CREDENTIAL, *deployment_objects.KINDS, *watches.OF_HOSTS)
_REMOVAL = 1800.0
"""Seconds for which a new lease waits until the services of former ones are gone."""


class Dpf(Kind, Builds, Carried, Activates, HandsOver, Checks, Lists, Updates, Watches):
    """A DPUSet of DPF that selects exactly one card. A lease on it has services: DPUServices on its node."""

    name: ClassVar[str] = "dpf"
    resource_type: ClassVar[str] = "dpu"
    Config, Requirements, Attributes = schema.Config, DpuRequirements, DpuAttributes
    matches = MATCHES
    needs: ClassVar[tuple[str, ...]] = (actions.CARD_TYPE, actions.CLUSTER_TYPE, actions.IMAGE_TYPE)
    idle_timeout: ClassVar[dt.timedelta | None] = None
    check_interval: ClassVar[dt.timedelta | None] = dt.timedelta(minutes=1)
    replaces: ClassVar[bool] = True
    forcible: ClassVar[bool] = True
    operator_facts: ClassVar[frozenset[str]] = frozenset(
        {"flavor_object", "set", "next", drift.FACT, drift.RESTORED, parking.FAILED}
    )

    def drafts(self, config: schema.Config, asked: Asked | None) -> Sequence[Draft]:
        """Return the DPU that the config describes, if it can meet the request. Its card is found by the build."""
        promised: Json = {
            "image": config.image, "doca": config.doca or None, "flavor": config.flavor_name or None,
            "mode": config.mode, **config.card, **config.cluster,
        }  # fmt: skip
        attributes = {name: promised[name] for name in DpuAttributes.model_fields if promised.get(name) is not None}
        if asked is None:
            return [Draft(attributes=attributes, capacity=Amounts(slots=1))]
        # What only the card decides is promised: the build leases a card that has it.
        promises = {**of_card(asked.requirements), **({"cluster": c} if (c := asked.requirements.cluster) else {})}
        draft = Draft(attributes={**promises, **attributes}, capacity=Amounts(slots=1))
        fits = asked.amounts.fits_in(draft.capacity)
        return [draft] if fits and not misses(MATCHES, draft.attributes, asked.requirements.model_dump()) else []

    def carrier(self, config: schema.Config, asked: Asked | None) -> NeededLease:
        """Return the lease of the card."""
        return actions.card_of(config, asked)

    def build(self) -> Plan:
        """Return the plan that leases card, cluster and image, holds the host, and lets DPF install the card."""
        return (
            Step(name="needs", act=actions.have_needs, deadline=_LONG),
            Step(name="lock", act=actions.lock_card),
            Step(name="compatible", act=actions.check_compatible),
            Step(name="hold", act=actions.hold_host, deadline=_LONG),
            Step(name="wake", act=parking.wake, deadline=_WAKING),
            Step(name="flavor", act=actions.create_flavor),
            Step(name="deployment", act=deploying.create, applies=deploying.deploys),
            Step(name="proof", act=deploying.prove, deadline=LIMIT, applies=deploying.deploys),
            # From the set on, DPF may write to the card at any time, and its host must not be rebooted meanwhile.
            Step(name="set", act=_set, interruptible=False),
            Step(name="provision", act=provisioning.provision, deadline=_LONG, interruptible=False),
            Step(name="join", act=actions.wait_for_node, deadline=LIMIT),
            Step(
                name="deployed", act=deploying.wait_for_services, deadline=deploying.READY_IN, applies=deploying.deploys
            ),
        )

    def activate(self) -> Plan:
        """Return the plan that removes what former leases have left, and opens the DPU to services of the lease."""
        return (
            Step(name="former", act=leasing.remove_former, deadline=_REMOVAL),
            Step(name="credentials", act=revocation.revoke_former, deadline=_REMOVAL),
            Step(name="services", act=leasing.open_to_lease),
        )

    def deactivate(self) -> Plan:
        """Return the plan that removes the credentials, chains and services of the lease."""
        return (
            Step(name="credentials", act=revocation.revoke_own, deadline=_LONG),
            Step(name="services", act=leasing.remove_own, deadline=_LONG),
        )

    def reusable_after(self, lease: LeaseView) -> bool:
        """Return whether another owner may get the DPU: not after one who could be root on it."""
        return not (lease.resource.blueprint.config.root or lease.facts.get(leasing.ROOT))

    def hand_over(self) -> Plan:
        """Return the plan that leaves services and chains to the new owner, but no credential."""
        return (
            Step(name="credentials", act=revocation.revoke_own, deadline=_LONG),
            Step(name="services", act=leasing.keep_services),
        )

    def interfaces(self) -> Mapping[str, Opener]:
        """Return the function that opens the services of a lease."""
        return {DpuServices.name: open_services}

    def check(self) -> Plan:
        """Return the plan that reads whether the DPU is ready, and removes services of leases that are over."""
        return (Step(name="look", act=health.look),)

    def update(self) -> Plan:
        """Return the plan that changes the labels of the DPU's node or, if forced, installs the card anew."""
        return updating.plan()

    def disruption(self, before: schema.Config | None, after: schema.Config) -> str:
        """Return which fields change for which the DPU is installed anew."""
        return updating.disruption(before, after)

    def unforcible(self, before: schema.Config | None, after: schema.Config) -> str:
        """Return why the DPU must be replaced for a change, or an empty string if it can be installed anew."""
        return updating.unforcible(before, after)

    def destroy(self) -> Plan:
        """Return the plan that deletes our objects, waits until DPF has removed the DPU, and parks the card."""
        return (
            Step(name="services", act=leasing.remove_former, deadline=actions.HANGS),
            Step(name="credentials", act=revocation.revoke_former, deadline=actions.HANGS),
            Step(name="deployment", act=deploying.delete, deadline=actions.HANGS),
            Step(name="set", act=actions.delete_sets, deadline=actions.HANGS),
            Step(name="dpu", act=actions.wait_until_removed, deadline=actions.HANGS),
            *parking.plan(),
            Step(name="flavor", act=actions.delete_flavors, deadline=actions.HANGS),
            # A request that was on its way when the lease ended may have written one meanwhile.
            Step(name="late", act=leasing.remove_former, deadline=actions.HANGS),
            Step(name="late_credentials", act=revocation.revoke_former, deadline=actions.HANGS),
        )

    def owned(self, blueprint: BlueprintView, installation: str) -> Sequence[Owned]:
        """Return the DPUSets and DPUFlavors of this installation. Others end with the DPU of their proof."""
        # The role of an account without deployments does not let it list them.
        deploys = deploying.deploys(blueprint.config)
        kinds = ("DPUSet", "DPUFlavor", *((deployment_objects.KIND,) if deploys else ()))
        return owned(blueprint, installation, kinds, named={deployment_objects.KIND: deploying.FACT})

    def watched(self, config: schema.Config) -> Sequence[WatchPlace]:
        """Return the types of objects that steps wait for, or that a check reads, as far as the config needs them."""
        return watches.places(config, [kind for kind in _WATCHED if allows(dict(config), kind)])

    def watch(
        self, blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
    ) -> Iterator[WatchNews]:
        """Yield the changes of the objects of one type."""
        return watches.watch(blueprint, place, installation, bookmark, ending)

    def watches_health(self, config: schema.Config) -> bool:
        """Return whether a check does nothing at a certain time: it ends credentials that have expired."""
        return config.credentials is None

    def check_blueprint(self, blueprint: BlueprintView) -> Sequence[Problem]:
        """Check that the API server can be used, has DPF, and can express flavor and services."""
        return checking.problems(blueprint)


def _set(spec: Spec, memo: Json) -> Answer:
    """Let DPF begin: by a DPUSet, or by the selector of the DPUDeployment."""
    return deploying.select(spec, memo) if deploying.deploys(spec.config) else actions.create_set(spec, memo)
