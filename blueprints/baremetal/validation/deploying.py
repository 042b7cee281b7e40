"""Checks in the ramdisk: its boot, inspection from inside, deployment of an image, and erasure with proof.

Their stages are the steps of the plans of leases. The deployment is for a lease that does not exist: its facts are part
of the record, and its host key is a secret of the host until the end of the validation.
"""

from __future__ import annotations

from dataclasses import replace

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Ready
from blueprints.baremetal import deployment, erasure, ramdisk
from blueprints.baremetal.config import BareMetalRequirements
from blueprints.baremetal.validation.record import FACT, noted, record_of, verdict_of
from blueprints.baremetal.validation.values import Verdict, unmet
from blueprints.contract import Act
from blueprints.hosts import HOST
from blueprints.specs import Asked, LeaseView, Spec

_LEASE = "lease"
ERASE, IN_BAND = "erase", "in-band"


def in_band(spec: Spec, memo: Json) -> Answer:
    """Inspect the host in the ramdisk. A difference to what the BMC says is a fault, unless it is only reported."""
    answer = deployment.inspect(spec, memo)
    if not isinstance(answer, Ready):
        return answer
    found = " ".join(answer.facts["differences"])
    if found and spec.config.compare == "require":
        return unmet(f"The host and its BMC disagree: {found}")
    disks = f"{len(answer.facts['disks'])} disks were found."
    return replace(answer, log=f"{disks} Only reported: {found}" if found else f"{disks} The BMC says the same.")


def deploys(act: Act) -> Act:
    """Wrap a step of a lease's activation, so that it deploys an image for no lease."""

    def deployed(spec: Spec, memo: Json) -> Answer:
        answer = act(replace(spec, lease=_nobody(spec)), memo)
        if not isinstance(answer, Ready) or not (answer.facts or answer.secrets):
            return answer
        facts = noted(spec, **{_LEASE: {**record_of(spec).get(_LEASE, {}), **answer.facts}})
        secrets = {FACT: {**spec.resource.secrets.get(FACT, {}), **answer.secrets}} if answer.secrets else {}
        return replace(
            answer, facts={}, secrets={}, resource_facts={**answer.resource_facts, **facts},
            resource_secrets={**answer.resource_secrets, **secrets},
        )  # fmt: skip

    return deployed


def _nobody(spec: Spec) -> LeaseView:
    """Return a lease that stands for the one that an image is usually deployed for."""
    asked = Asked(type=HOST, requirements=BareMetalRequirements(), amounts=Amounts(slots=1), exclusive=True)
    return LeaseView(
        id=0, key=f"validate-{spec.resource.key}", owner="", asked=asked, resource=spec.resource,
        facts=record_of(spec).get(_LEASE, {}), secrets=spec.resource.secrets.get(FACT, {}), active=False,
    )  # fmt: skip


def is_deployed(spec: Spec) -> bool:
    """Return whether an image was, or may have been, written to a disk."""
    return bool(record_of(spec).get(_LEASE))


def unless_running(act: Act) -> Act:
    """Wrap a step of another boot of the ramdisk, so that it does nothing if the ramdisk still runs."""

    def booted(spec: Spec, memo: Json) -> Answer:
        running = verdict_of(spec, IN_BAND) == Verdict.OK and not is_deployed(spec)
        return Ready() if running and not memo else act(spec, memo)

    return booted


def erase(spec: Spec, memo: Json) -> Answer:
    """Erase all fixed disks. Before each erasure, the ramdisk writes canaries; none of them may be left after it."""
    answer = erasure.erase(spec, memo)
    if not isinstance(answer, Ready):
        return answer
    if not answer.erasures:
        return unmet("The host has no fixed disk that could be erased.")
    canaries = "Blocks that were written to each disk before are gone."
    return replace(answer, log=f"{answer.log} {canaries}")


def leave(spec: Spec, memo: Json) -> Answer:
    """Switch a host with a ramdisk off, without media."""
    answer = ramdisk.leave(spec, memo)
    return unmet(answer.message) if isinstance(answer, Failed) else answer
