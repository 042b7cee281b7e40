"""Steps that attest a host: over its control account or, if Drydock deploys it, in the ramdisk before its disk is used.

In the ramdisk, the PCRs are those of firmware and Secure Boot before the operating system of any tenant has run.
"""

from __future__ import annotations

from collections.abc import Callable

from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json
from blueprints.attestation import Run, attested, enrolled
from blueprints.baremetal import ramdisk_agent
from blueprints.baremetal.ramdisk import abandoned
from blueprints.hostshell import told
from blueprints.specs import Spec


def enrol(spec: Spec, memo: Json) -> Answer:
    """Attest the host at its enrolment, and record what it is compared with."""
    return _carried_out(spec, memo, lambda run: enrolled(spec, memo, run))


def attest(spec: Spec, memo: Json) -> Answer:
    """Attest the host for a lease. A mismatch quarantines the host, and the lease is placed on another one."""
    return _carried_out(spec, memo, lambda run: attested(spec, memo, run))


def attest_again(spec: Spec, memo: Json) -> Answer:
    """Attest the host on an operator's request, who may have it compared with what it shows now."""
    return _carried_out(spec, memo, lambda run: enrolled(spec, memo, run, anew=spec.arguments.renew))


def kept_traits(spec: Spec) -> frozenset[str]:
    """Return the traits that the host has by evidence which was collected before, and which the config asks for."""
    policy = spec.config.attestation
    return frozenset() if policy is None else policy.traits & spec.resource.traits


def _carried_out(spec: Spec, memo: Json, act: Callable[[Run], Answer]) -> Answer:
    """Carry out an act with a shell of root on the host. One that fails in the ramdisk leaves the host off."""

    @told
    def answered(spec: Spec, memo: Json) -> Answer:
        return act(_root(spec))

    answer = answered(spec, memo)
    if spec.config.ramdisk is None or not isinstance(answer, Failed):
        return answer
    return abandoned(spec, answer)


def _root(spec: Spec) -> Run:
    if spec.config.ramdisk is not None:
        return ramdisk_agent.shell(spec.resource, spec.deadline).run
    there = shell(spec)
    return there.run if spec.config.accounts == "shared" else there.as_root
