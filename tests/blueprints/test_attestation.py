"""Steps that attest hosts, with an emulated TPM and a host that may return anything."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.amounts import Amounts
from blueprints.answers import Failed, Json, Ready, Scope, Wait
from blueprints.attestation import Attestation, ExpectedEvidence, attested, check_expected, enrolled, host_tpm, tsm
from blueprints.attestation.host_tpm import NoEvidence
from blueprints.attestation.steps import Run
from blueprints.specs import BlueprintView, ResourceView
from drydock.core.errors import InvalidRequest
from drydock_client import attestation
from interfaces.command.result import CommandResult
from interfaces.errors import CommandFailed
from tests.blueprints.tpm_peers import EmulatedTpm, emulated_tpm
from tests.client import tpms

LEASE = 5


@pytest.fixture(scope="module")
def tpm() -> Iterator[EmulatedTpm]:
    with emulated_tpm() as made:
        yield made


def run(script: str, *arguments: str) -> str:
    """Run a script as a host would."""
    ended = subprocess.run(["sh", "-c", script, "sh", *arguments], capture_output=True, timeout=60)
    result = CommandResult(exit_code=ended.returncode, stdout=ended.stdout, stderr=ended.stderr)
    if not result.ok:
        raise CommandFailed(result)
    return result.text


def spec(policy: Json, facts: Json | None = None, *, lease: int = 0, expected: Json | None = None) -> Any:
    """The spec of a step for a host with these facts."""
    config = SimpleNamespace(attestation=Attestation.model_validate(policy))
    blueprint = BlueprintView(id=1, name="rack", kind="bare_metal", generation=1, config=config)
    host = ResourceView(
        id=1, key="dd-1", name="alpha", type="host", origin="registered", blueprint=blueprint, attributes={},
        capacity=Amounts(), traits=frozenset({"blue", "tdx"}), facts=facts or {},
        registration={"attestation": expected or {}},
    )  # fmt: skip
    return SimpleNamespace(config=config, resource=host, lease=SimpleNamespace(id=lease) if lease else None)


def enrol(given: Any, how: Run = run, **more: Any) -> Any:
    """Carry out the step that enrols a host, in both of its calls."""
    answer = enrolled(given, {}, how, **more)
    return enrolled(given, answer.memo, how, **more) if isinstance(answer, Wait) else answer


def refused(answer: Any) -> str:
    assert isinstance(answer, Failed), answer
    assert (answer.scope, answer.code, answer.quarantines) == (Scope.OPERATOR, "attestation", True)
    return answer.message


def test_a_tpm_is_enrolled_and_must_stay_the_same(tpm):
    policy = {"tpm": {"ca": tpm.ca, "tcti": tpm.tcti}}
    answer = enrol(spec(policy))
    assert isinstance(answer, Ready), answer
    assert answer.traits == frozenset({"blue", "tpm"}), "the trait tdx needs evidence that was not asked for"
    known = answer.facts["attestation"]["tpm"]
    assert (known["registered"], known["issuer"]) == ([], "CN=swtpm-localca")
    assert known["ak_sha256"] == attestation.fingerprint_of(base64.b64decode(known["ak"]))
    assert answer.log == "The TPM quote passed 10 of 11 checks. Not checked: pcrs."
    # The attestation key is the same after the TPM was cleared, as the erasure of a host does.
    tpm.run("tpm2_clear", "-c", "p")
    lease = attested(spec(policy, answer.facts, lease=LEASE), {}, run)
    assert isinstance(lease, Ready), lease
    (evidence,) = lease.evidence
    assert (evidence.kind, evidence.verdict.passed, evidence.verdict.unchecked) == ("tpm", True, ())
    assert attestation.read_tpm_evidence(evidence.document).lease == LEASE
    other = tpms.Tpm()
    swapped = {**known, "ak": base64.b64encode(tpms.ecc_public(other.ak_key)).decode()}
    assert "(ak): The attestation key has" in refused(enrol(spec(policy, {"attestation": {"tpm": swapped}})))
    assert "(ak): The attestation key has" in refused(
        attested(spec(policy, {"attestation": {"tpm": swapped}}, lease=LEASE), {}, run)
    )
    assert isinstance(enrol(spec(policy, {"attestation": {"tpm": swapped}}), anew=True), Ready)
    values = {**known, "pcrs": {**known["pcrs"], "7": "ab" * 32}}
    found = refused(attested(spec(policy, {"attestation": {"tpm": values}}, lease=LEASE), {}, run))
    assert f"PCR 7 is {known['pcrs']['7']}; expected: {'ab' * 32}." in found
    wider = enrol(spec(policy, expected={"pcrs": {"16": "00" * 32}}))
    assert wider.facts["attestation"]["tpm"]["registered"] == [16]
    assert set(wider.facts["attestation"]["tpm"]["pcrs"]) == {"0", "2", "7", "16"}


def test_another_vendor_or_another_certificate_than_the_registered_one_is_refused(tpm):
    other = {"tpm": {"ca": tpms.Authority("x").pem().decode(), "tcti": tpm.tcti}}
    assert "Its issuer (CN=swtpm-localca) is none of the pinned authorities" in refused(enrol(spec(other)))
    ours = {"tpm": {"ca": tpm.ca, "tcti": tpm.tcti}}
    found = refused(enrol(spec(ours, expected={"ek_certificate": "ab" * 32})))
    assert f"expected: {'ab' * 32}." in found


def test_keys_that_are_not_in_one_tpm_are_refused(tpm):
    """A host that shows the endorsement key of a good TPM, and signs with a key of its own."""
    policy = {"tpm": {"ca": tpm.ca, "tcti": tpm.tcti}}
    good = host_tpm.read_identity(run(host_tpm.IDENTIFY, tpm.tcti))
    own = tpms.Tpm()

    def lying(script: str, *arguments: str) -> str:
        ak = {"ak": tpms.sized(tpms.ecc_public(own.ak_key))}
        if script == host_tpm.IDENTIFY:
            return printed(ak | {"ek": tpms.sized(good.ek), "certificate": good.certificate})
        quote = tpms.quoted(bytes.fromhex(arguments[2]), tpms.PCRS)
        return printed(ak | {"quote": quote, "signature": own.sign(quote), "pcrs": b"".join(tpms.PCRS.values()),
                             "secret": b"x" * 32})  # fmt: skip

    assert "(ek_binding): The TPM did not open a credential for both keys" in refused(enrol(spec(policy), lying))


def printed(fields: dict[str, bytes]) -> str:
    return "".join(f"{name}={base64.b64encode(value).decode()}\n" for name, value in fields.items())


def test_a_host_that_gives_no_evidence_fails_and_says_why(tpm):
    policy = {"tpm": {"ca": tpm.ca, "tcti": "swtpm:host=127.0.0.1,port=1"}}
    answer = enrol(spec(policy))
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code, answer.quarantines) == (Scope.STEP, "no_evidence", False)
    assert "The host has no TPM 2.0 that answers" in answer.message
    old = attested(spec(policy, lease=LEASE), {}, run)
    assert isinstance(old, Failed)
    assert "enrolled without the evidence that its blueprint asks for now: tpm. Update the host" in old.message


@pytest.mark.parametrize("output", ["", "ak", "ak=!", "ak=AAAA\n", "x=" + "A" * 70_000, "ak=AAIA\nek=AAA=\n", "\0=\n"])
def test_whatever_a_host_returns_is_evidence_or_a_reason(output, tpm):
    policy = {"tpm": {"ca": tpm.ca}, "tdx": {}}
    answer = enrol(spec(policy), lambda *_: output)
    assert isinstance(answer, Failed)
    assert answer.code == "no_evidence"
    for read in (host_tpm.read_quote, tsm.read):
        with pytest.raises(NoEvidence):
            read(output)


def test_every_failure_of_a_script_has_a_sentence():
    for code in (*host_tpm.PROBLEMS, 1, 127):
        found = host_tpm.refused(code, "broken\n\x1b[31m")
        assert found.message.startswith("The host ")
        assert "\x1b" not in found.message
    for code in (*tsm.PROBLEMS, 1):
        assert tsm.refused(code, "").message.startswith("The host ")


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"tpm": {}}, {"tpm": {"ca": "x"}}, {"tdx": {"root": "x"}}, {"tpm": {"ca": "CA", "pcrs": []}},
        {"tpm": {"ca": "CA", "pcrs": [24]}}, {"tpm": {"ca": "CA", "pcrs": [7, 7]}},
        {"tpm": {"ca": "CA", "tcti": "a b"}}, {"tpm": {"ca": "CA", "bank": "sha1"}},
    ],
)  # fmt: skip
def test_a_wrong_config_is_refused(wrong):
    pem = tpms.Authority("x").pem().decode()
    given = {name: {**one, "ca": pem} if one.get("ca") == "CA" else one for name, one in wrong.items()}
    with pytest.raises(ValidationError):
        Attestation.model_validate(given)


def test_expected_evidence_must_be_what_the_blueprint_asks_for():
    pem = tpms.Authority("x").pem().decode()
    tpm, tdx = Attestation.model_validate({"tpm": {"ca": pem}}), Attestation.model_validate({"tdx": {}})
    values = ExpectedEvidence.model_validate({"pcrs": {"7": "AB" * 32}})
    assert values.pcrs == {"7": "ab" * 32}
    check_expected(None, None)
    check_expected(tpm, values)
    for policy, given in (
        (None, values), (tdx, values), (tpm, ExpectedEvidence(mr_td="ab" * 48)),
        (tpm, replace_pcrs("ab" * 48)), (tdx, ExpectedEvidence(tcti="device:/dev/tpm0")),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as caught:
            check_expected(policy, given)
        assert caught.value.field == "attestation"
    with pytest.raises(ValidationError):
        ExpectedEvidence.model_validate({"pcrs": {"x": "ab"}})
    with pytest.raises(ValidationError):
        ExpectedEvidence.model_validate({"mr_td": "ab"})


def replace_pcrs(value: str) -> ExpectedEvidence:
    return ExpectedEvidence.model_validate({"pcrs": {"7": value}})
