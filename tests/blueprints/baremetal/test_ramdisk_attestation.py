"""A host that Drydock deploys is attested in the ramdisk: at its enrolment, and before an image is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from blueprints.answers import Failed
from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.values import PowerState
from drydock_client import attestation
from tests.blueprints.baremetal.scripted import scripted
from tests.blueprints.baremetal.test_ramdisk import bed, server
from tests.blueprints.tpm_peers import EmulatedTpm, emulated_tpm

__all__ = ["bed", "scripted", "server"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]


@pytest.fixture
def tpm() -> Iterator[EmulatedTpm]:
    with emulated_tpm() as made:
        yield made


def test_it_is_attested_in_the_ramdisk_before_an_image_is_written(bed, tpm):
    bed.given = {"attestation": {"tpm": {"ca": tpm.ca, "tcti": tpm.tcti}}}
    enrolled = bed.enrol()
    assert enrolled.ended == "ready", enrolled.answer
    host = enrolled.spec.resource
    assert set(host.facts["attestation"]["tpm"]["pcrs"]) == {"0", "2", "7"}
    lease = bed.lease(host)
    activated = bed.run("activate", host, lease)
    assert activated.ended == "ready", activated.answer
    steps = [one.step for one in activated.calls]
    assert steps.index("ramdisk_attest") < steps.index("write")
    assert "attest" not in steps
    (evidence,) = [one for call in activated.calls for one in getattr(call.answer, "evidence", ())]
    assert evidence.verdict.passed
    assert attestation.read_tpm_evidence(evidence.document).lease == lease.id
    host, over = bed.ended(activated.spec.lease)
    host = bed.ready("clean", host, over).spec.resource
    # Firmware that was changed meanwhile gets no image, and no tenant.
    tpm.extend(7)
    refused = bed.run("activate", host, bed.lease(host))
    assert isinstance(refused.answer, Failed), refused.answer
    assert (refused.step, refused.answer.code, refused.answer.quarantines) == ("ramdisk_attest", "attestation", True)
    assert "PCR 7 is " in refused.answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    # An operator lets the host be compared with what it shows now.
    act = next(act for act in BareMetal().acts() if act.name == "attest")
    host = replace(refused.spec.resource, lease_facts=lambda: ())
    spec = replace(bed.act_spec(act, host), phase="act", arguments=act.Arguments(renew=True))
    renewed = bed.driver().run(act.plan(), spec)
    assert renewed.ended == "ready", renewed.answer
    assert (
        renewed.spec.resource.facts["attestation"]["tpm"]["pcrs"]["7"] != host.facts["attestation"]["tpm"]["pcrs"]["7"]
    )
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    bed.destroyed(renewed.spec.resource)
