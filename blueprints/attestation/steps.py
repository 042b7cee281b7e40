"""The steps that attest a host: at its enrolment, which records what it is compared with, and before each lease."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.attestation import host_tpm, tsm
from blueprints.attestation.config import TRAITS, Attestation, ExpectedEvidence, TdxPolicy, TpmPolicy
from blueprints.attestation.host_tpm import NoEvidence
from blueprints.records.evidence import Evidence
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from drydock_client import attestation
from drydock_client.attestation import AttestationError, Expected, TpmEvidence, TpmExpected, TpmVerdict
from interfaces.errors import CommandFailed

MISMATCH = "attestation"
"""Code of the failure of a host whose evidence is not trustworthy."""
FACT = "attestation"
"""Name of the fact with what a host is compared with, by the name of the evidence."""
TPM, TDX = "tpm", "tdx"
"""Names of the evidence, and of the traits."""
_NONCE = 32

Run = Callable[..., str]
"""Runs a script with arguments as root on the host and returns its output. Raises InterfaceError and NeedsOperator."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Evidence, and the facts with which the host is compared from now on."""

    evidence: Evidence
    facts: Json


def enrolled(spec: Spec, memo: Json, run: Run, *, anew: bool = False) -> Answer:
    """Attest a host, and record its keys and values, with which it is compared from now on.

    A host that was attested before must show the same, unless `anew` is set. What the registration says holds in any
    case. The host gets the traits of its evidence.
    """
    policy: Attestation = spec.config.attestation
    known: Json = {} if anew else spec.resource.facts.get(FACT) or {}
    context = attestation.host_context(spec.resource.key)
    found = []
    try:
        if policy.tpm is not None:
            if "identity" not in memo:
                sentence = "The TPM of the host is asked for its keys."
                return Wait(
                    after=0.0,
                    memo={"identity": _identify(_tcti(policy.tpm, spec.resource), run)},
                    percent=30,
                    sentence=sentence,
                )
            found.append(_enrol_tpm(policy.tpm, spec, known.get(TPM) or {}, memo["identity"], context, run))
        if policy.tdx is not None:
            found.append(_ask_tdx(policy.tdx, spec, known.get(TDX) or {}, context, run))
    except NoEvidence as error:
        return Failed(scope=Scope.STEP, code=error.code, message=str(error))
    facts = {FACT: {one.evidence.kind: one.facts for one in found}}
    traits = (spec.resource.traits - TRAITS) | policy.traits
    return _answer(found, Ready(facts=facts, traits=traits, log=_log(found)))


def attested(spec: Spec, memo: Json, run: Run) -> Answer:
    """Attest an enrolled host for the lease of the step, which keeps the evidence."""
    policy: Attestation = spec.config.attestation
    assert spec.lease is not None
    context, facts = attestation.lease_context(spec.lease.id), spec.resource.facts.get(FACT) or {}
    missing = sorted(name for name in policy.traits if not facts.get(name))
    if missing:
        message = f"The host was enrolled without the evidence that its blueprint asks for now: {', '.join(missing)}."
        return Failed(scope=Scope.OPERATOR, code="not_attested", message=f"{message} Update the host to attest it.")
    found = []
    try:
        if policy.tpm is not None:
            nonce = secrets.token_bytes(_NONCE)
            evidence = tpm_evidence(policy.tpm, spec.resource, spec.lease.id, nonce, run)
            found.append(_Found(evidence=evidence, facts=facts[TPM]))
        if policy.tdx is not None:
            found.append(_ask_tdx(policy.tdx, spec, facts[TDX], context, run))
    except NoEvidence as error:
        return Failed(scope=Scope.STEP, code=error.code, message=str(error))
    return _answer(found, Ready(log=_log(found), evidence=tuple(one.evidence for one in found)))


def _answer(found: list[_Found], good: Ready) -> Answer:
    """Return the answer for a host that gave all evidence, or the failure for one that cannot be trusted."""
    wrong = [one.evidence.verdict.sentence for one in found if not one.evidence.verdict.passed]
    if not wrong:
        return good
    return Failed(
        scope=Scope.OPERATOR, code=MISMATCH, message=" ".join(wrong), quarantines=True,
        evidence=tuple(one.evidence for one in found),
    )  # fmt: skip


def _log(found: list[_Found]) -> str:
    return "\n".join(one.evidence.verdict.sentence for one in found)


def _expected(resource: ResourceView) -> ExpectedEvidence:
    return ExpectedEvidence.model_validate(resource.registration.get("attestation") or {})


def _ask(run: Run, script: str, *arguments: str) -> str:
    """Run a script that asks the TPM. Raises NoEvidence with the reason if it fails."""
    try:
        return run(script, *arguments)
    except CommandFailed as error:
        raise host_tpm.refused(error.result.exit_code, error.result.error_text) from error


def _tcti(policy: TpmPolicy, resource: ResourceView) -> str:
    return _expected(resource).tcti or policy.tcti


def _identify(tcti: str, run: Run) -> Json:
    found = host_tpm.read_identity(_ask(run, host_tpm.IDENTIFY, tcti))
    return {"ak": _text(found.ak), "ek": _text(found.ek), "ek_certificate": _text(found.certificate)}


def _enrol_tpm(policy: TpmPolicy, spec: Spec, known: Json, identity: Json, context: bytes, run: Run) -> _Found:
    """Let the TPM prove that it has both keys, and take a quote from it. `known` is what an earlier enrolment found."""
    keys = {name: base64.b64decode(value) for name, value in identity.items()}
    try:
        challenge = attestation.make_credential(
            attestation.parse_public(keys["ek"]), attestation.parse_public(keys["ak"])
        )
    except AttestationError as error:
        raise NoEvidence(f"The TPM has no usable keys. {error}") from None
    expected = _expected(spec.resource)
    nonce, numbers = secrets.token_bytes(_NONCE), sorted({*policy.pcrs, *map(int, expected.pcrs)})
    policy = policy.model_copy(update={"tcti": _tcti(policy, spec.resource)})
    quote = _take(policy, numbers, nonce, context, run, _text(challenge.blob))
    before = known.get("pcrs", {}) if known.get("bank") == policy.bank else {}
    ak = base64.b64decode(known["ak"]) if known else keys["ak"]
    wanted = TpmExpected(
        nonce=nonce, authorities=policy.ca.encode(), ak=attestation.fingerprint_of(ak),
        pcrs=_accepted(numbers, {**before, **expected.pcrs}), ek_certificate=expected.ek_certificate,
        proven=hmac.compare_digest(quote.secret, challenge.secret),
    )  # fmt: skip
    evidence = _verified(replace(_tpm_evidence(policy, numbers, nonce, quote, keys), host=spec.resource.key), wanted)
    verdict = evidence.verdict
    assert isinstance(verdict, TpmVerdict)
    facts = {
        **identity, "bank": policy.bank, "pcrs": dict(verdict.pcrs), "registered": sorted(map(int, expected.pcrs)),
        "ak_sha256": verdict.ak, "issuer": verdict.issuer, "recorded_at": clock.now().isoformat(),
    }  # fmt: skip
    return _Found(evidence=evidence, facts=facts)


def tpm_evidence(
    policy: TpmPolicy, resource: ResourceView, lease: int, nonce: bytes, run: Run, pcrs: Mapping[str, str] | None = None
) -> Evidence:
    """Take a quote for a lease, and compare it with what the enrolment of the host recorded, or with values in `pcrs`.

    The enrolment proved that the keys are in one TPM, and the quote shows that it is still the same. Raises NoEvidence.
    """
    known, expected = resource.facts[FACT][TPM], _expected(resource)
    keys = {name: base64.b64decode(known[name]) for name in ("ak", "ek", "ek_certificate")}
    numbers = sorted({*map(int, known["pcrs"]), *map(int, pcrs or {})})
    used = policy.model_copy(update={"bank": known["bank"], "tcti": _tcti(policy, resource)})
    quote = _take(used, numbers, nonce, attestation.lease_context(lease), run)
    values = {**known["pcrs"], **expected.pcrs, **(pcrs or {})}
    wanted = TpmExpected(
        nonce=nonce, authorities=policy.ca.encode(), ak=attestation.fingerprint_of(keys["ak"]), proven=True,
        pcrs=_accepted(numbers, values), ek_certificate=expected.ek_certificate,
    )  # fmt: skip
    return _verified(replace(_tpm_evidence(used, numbers, nonce, quote, keys), lease=lease), wanted)


def _take(
    policy: TpmPolicy, numbers: list[int], nonce: bytes, context: bytes, run: Run, credential: str = ""
) -> host_tpm.TpmQuote:
    selection = f"{policy.bank}:{','.join(map(str, numbers))}"
    extra = attestation.qualifying(nonce, context).hex()
    return host_tpm.read_quote(_ask(run, host_tpm.QUOTE, policy.tcti, selection, extra, credential))


def _accepted(numbers: list[int], values: Mapping[str, str]) -> dict[int, frozenset[str]]:
    """Return the accepted value of each PCR for which there is one."""
    return {number: frozenset({values[str(number)]}) for number in numbers if str(number) in values}


def _tpm_evidence(
    policy: TpmPolicy, numbers: list[int], nonce: bytes, quote: host_tpm.TpmQuote, keys: dict[str, bytes]
) -> TpmEvidence:
    try:
        values = attestation.pcr_values(quote.values, policy.bank, numbers)
    except AttestationError as error:
        raise NoEvidence(f"The host returned other PCRs than those that were asked for. {error}") from None
    return TpmEvidence(
        quote=quote.quote, signature=quote.signature, ak=quote.ak, bank=policy.bank, pcrs=values, ek=keys["ek"],
        ek_certificate=keys["ek_certificate"], nonce=nonce, collected_at=clock.now(),
    )  # fmt: skip


def _verified(evidence: TpmEvidence, wanted: TpmExpected) -> Evidence:
    try:
        verdict = attestation.verify_tpm(evidence, wanted, clock.now())
    except AttestationError as error:
        raise NoEvidence(f"The host returned evidence that cannot be read. {error}") from None
    document = attestation.write_tpm_evidence(evidence)
    return Evidence(kind="tpm", nonce=wanted.nonce, document=document, verdict=verdict, provider="tpm2-tools")


def _ask_tdx(policy: TdxPolicy, spec: Spec, known: Json, context: bytes, run: Run) -> _Found:
    """Take a TDX quote from a host, and compare it with its registration, else with what the enrolment recorded."""
    nonce, name = secrets.token_bytes(_NONCE), f"drydock-{secrets.token_hex(8)}"
    data = attestation.report_data(nonce, context)
    try:
        output = run(tsm.SCRIPT, tsm.FOLDER, name, _text(data))
    except CommandFailed as error:
        raise tsm.refused(error.result.exit_code, error.result.error_text) from error
    provider, quote = tsm.read(output)
    mr_td = _expected(spec.resource).mr_td or str(known.get("mr_td", ""))
    root = attestation.root_fingerprint(policy.root.encode()) if policy.root else attestation.INTEL_ROOT
    wanted = Expected(nonce=nonce, context=context, mr_tds=frozenset({mr_td} if mr_td else ()), root=root)
    try:
        verdict = attestation.verify(quote, wanted, clock.now())
    except AttestationError as error:
        raise NoEvidence(f"The host returned something else than a TDX quote. {error}") from None
    made = Evidence(kind="tdx", nonce=nonce, document=quote, verdict=verdict, provider=provider, root=root)
    facts: dict[str, Any] = {
        "mr_td": verdict.mr_td, "fmspc": verdict.fmspc, "registered": bool(_expected(spec.resource).mr_td),
        "recorded_at": clock.now().isoformat(),
    }  # fmt: skip
    return _Found(evidence=made, facts=facts)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
