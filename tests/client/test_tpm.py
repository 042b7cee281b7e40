"""Evidence of TPMs: read within bounds, verified check by check, and refused with the reason if tampered with."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
from contextlib import suppress
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock_client import attestation
from drydock_client.attestation import AttestationError, TpmExpected, TpmVerdict, tpm
from drydock_client.attestation.tpm_credential import kdf_a
from tests.client import tpms
from tests.client.tpms import AK, NOW, PCRS, Authority, Tpm, ecc_public, rsa_public, sized

NONCE = b"\x5e" * 32
LEASE = 7


@pytest.fixture(scope="module")
def made() -> Tpm:
    return Tpm()


@pytest.fixture(scope="module")
def expected(made: Tpm) -> TpmExpected:
    return TpmExpected(
        nonce=NONCE, authorities=made.authority.pem(), ak=attestation.fingerprint_of(ecc_public(made.ak_key)),
        pcrs={number: frozenset({value.hex()}) for number, value in PCRS.items()}, proven=True,
    )  # fmt: skip


def wrong(found: TpmVerdict) -> dict[str, str]:
    return {one.name: one.message for one in found.failed}


def test_a_quote_passes_every_check_and_is_the_same_after_a_file(made, expected):
    evidence = made.evidence(NONCE, LEASE)
    found = attestation.verify_tpm(evidence, expected, NOW)
    assert (found.passed, found.unchecked) == (True, ()), wrong(found)
    assert [one.name for one in found.checks] == list(attestation.TPM_CHECKS)
    assert found.sentence == "The TPM quote passed 11 of 11 checks."
    assert found.pcrs == {"0": "10" * 32, "2": "12" * 32, "7": "17" * 32}
    file = attestation.write_tpm_evidence(evidence)
    assert attestation.is_tpm_evidence(file)
    assert attestation.read_tpm_evidence(file) == evidence


def test_without_anything_to_compare_with_it_says_what_was_not_checked(made):
    found = attestation.verify_tpm(made.evidence(NONCE, LEASE), TpmExpected(), NOW)
    assert found.passed
    assert found.unchecked == ("ak", "ek_certificate", "ek_validity", "ek_binding", "pcrs")


def test_tampered_evidence_is_refused_with_the_reason(made, expected):
    good = made.evidence(NONCE, LEASE)

    def failed(evidence=good, **changes):
        return wrong(attestation.verify_tpm(evidence, replace(expected, **changes), NOW))

    other = Tpm(ak_key=made.ak_key, ek_key=made.ek_key)
    changed = {**PCRS, 7: b"\x99" * 32}
    assert set(failed(nonce=b"\x11" * 32)) == {"nonce"}
    assert set(failed(replace(good, lease=LEASE + 1))) == {"nonce"}
    assert set(failed(replace(good, pcrs=changed))) == {"pcr_digest", "pcrs"}
    booted = failed(made.evidence(NONCE, LEASE, values=changed))
    assert booted == {"pcrs": f"PCR 7 is {'99' * 32}; expected: {'17' * 32}."}
    assert set(failed(made.evidence(NONCE, LEASE, values={0: PCRS[0]}))) == {"pcr_selection", "pcrs"}
    assert set(failed(made.evidence(NONCE, LEASE, pcrs={}))) == {"pcr_digest", "pcr_selection", "pcrs"}
    assert set(failed(made.evidence(NONCE, LEASE, magic=1))) == {"magic"}
    forged = replace(good, signature=made.sign(good.quote + b"x"))
    assert set(failed(forged)) == {"quote_signature"}
    assert set(failed(Tpm(authority=made.authority).evidence(NONCE, LEASE))) == {"ak"}
    assert "none of the pinned authorities" in failed(other.evidence(NONCE, LEASE))["ek_certificate"]
    assert "for another endorsement key" in failed(
        replace(good, ek_certificate=made.authority.issue(rsa.generate_private_key(65537, 2048).public_key()))
    )["ek_certificate"]  # fmt: skip
    assert "has no certificate" in failed(replace(good, ek_certificate=b""))["ek_certificate"]
    assert set(failed(proven=False)) == {"ek_binding"}
    late = attestation.verify_tpm(good, expected, NOW + dt.timedelta(days=400))
    assert set(wrong(late)) == {"ek_validity"}


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (tpm.RESTRICTED, "restricted"), (tpm.SIGN, "sign"), (tpm.FIXED_TPM, "fixedTPM"),
        (tpm.FIXED_PARENT, "fixedParent"), (tpm.ORIGIN, "sensitiveDataOrigin"),
    ],
)  # fmt: skip
def test_an_attestation_key_that_signs_other_things_or_can_leave_its_tpm_is_refused(made, expected, bit, name):
    area = ecc_public(made.ak_key, AK & ~bit)
    weak = Tpm(authority=made.authority, ek_key=made.ek_key, ak_key=made.ak_key, ak=area)
    known = replace(expected, ak=attestation.fingerprint_of(area))
    found = wrong(attestation.verify_tpm(weak.evidence(NONCE, LEASE), known, NOW))
    assert found == {"ak_attributes": f"The attestation key lacks the attributes {name}."}


def test_an_authority_that_may_not_issue_certificates_is_refused(made, expected):
    leaf = tpms.x509.load_der_x509_certificate(made.authority.issue(made.authority.key.public_key()))
    pem = leaf.public_bytes(tpms.Encoding.PEM)
    found = attestation.verify_tpm(made.evidence(NONCE, LEASE), replace(expected, authorities=pem), NOW)
    assert set(wrong(found)) == {"ek_certificate"}


@pytest.mark.parametrize("pss", [False, True])
def test_rsa_signatures_are_read_by_both_schemes(made, expected, pss):
    key = rsa.generate_private_key(65537, 2048)
    area = rsa_public(key, AK, scheme=tpm.RSAPSS if pss else tpm.RSASSA)
    signer = Tpm(authority=made.authority, ek_key=made.ek_key, ak_key=key, ak=area)
    evidence = signer.evidence(NONCE, LEASE)
    evidence = replace(evidence, signature=signer.sign(evidence.quote, pss=pss))
    known = replace(expected, ak=attestation.fingerprint_of(area))
    assert not wrong(attestation.verify_tpm(evidence, known, NOW))
    other = replace(evidence, signature=signer.sign(evidence.quote, pss=not pss))
    assert set(wrong(attestation.verify_tpm(other, known, NOW))) == {"quote_signature"}


def test_a_credential_is_for_an_endorsement_key_only(made):
    ak = attestation.parse_public(ecc_public(made.ak_key))
    found = attestation.make_credential(attestation.parse_public(made.ek), ak)
    assert (len(found.secret), found.blob[:8].hex()) == (32, "badcc0de00000001")
    assert found.secret not in found.blob
    with pytest.raises(AttestationError, match="lacks the attributes decrypt"):
        attestation.make_credential(attestation.parse_public(rsa_public(made.ek_key, tpms.EK & ~tpm.DECRYPT)), ak)


def test_the_key_derivation_is_that_of_sp_800_108():
    # One block of HMAC: counter, label with its zero, context, and the number of bits.
    message = b"\0\0\0\1" + b"STORAGE\0" + b"context" + b"\0\0\0\x80"
    assert (
        kdf_a("sha256", b"seed", "STORAGE", b"context", 128) == hmac.new(b"seed", message, hashlib.sha256).digest()[:16]
    )


def test_the_attestation_key_is_given_as_a_fingerprint_an_area_or_a_file_of_the_tools(made):
    area = ecc_public(made.ak_key)
    known = attestation.fingerprint_of(area)
    assert {attestation.ak_of(one) for one in (known.upper().encode() + b"\n", area, sized(area))} == {known}
    with pytest.raises(AttestationError):
        attestation.ak_of(b"something else")


def test_expected_values_are_a_number_and_a_digest():
    assert attestation.pcr_of("7=" + "AB" * 32) == (7, "ab" * 32)
    for text in ("", "7", "24=" + "ab" * 32, "-1=" + "ab" * 32, "7=ab", "7=xyz", "²=" + "ab" * 32):
        with pytest.raises(AttestationError):
            attestation.pcr_of(text)


def test_structures_with_more_or_less_bytes_are_refused(made):
    good = made.evidence(NONCE)
    for name, read in (("quote", tpm.parse_quoted), ("signature", tpm.parse_signature), ("ak", tpm.parse_public)):
        content = getattr(good, name)
        for cut in range(len(content)):
            with pytest.raises(AttestationError):
                read(content[:cut])
        with pytest.raises(AttestationError, match="bytes follow its end"):
            read(content + b"\0")
    with pytest.raises(AttestationError, match="at most 4096"):
        tpm.parse_quoted(bytes(5000))


def test_a_certificate_that_a_tpm_has_padded_is_read(made):
    content = made.evidence(NONCE).ek_certificate
    assert attestation.load_ek_certificate(content + b"\xff" * 100) == attestation.load_ek_certificate(content)


def test_a_key_that_is_not_on_its_curve_is_refused(made):
    area = bytearray(ecc_public(made.ak_key))
    area[-1] ^= 1
    with pytest.raises(AttestationError, match="cannot be used"):
        attestation.verify_tpm(made.evidence(NONCE, ak=bytes(area)), TpmExpected(), NOW)


_BASE = Tpm()
_GOOD = _BASE.evidence(NONCE, LEASE)
_FIELDS = ("quote", "signature", "ak", "ek", "ek_certificate")


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(_FIELDS), at=st.integers(0, 2000), value=st.integers(0, 255), cut=st.integers(0, 3000),
    pcrs=st.dictionaries(st.integers(0, 23), st.binary(max_size=64), max_size=3),
)  # fmt: skip
def test_any_bytes_lead_to_a_verdict_or_one_error(name, at, value, cut, pcrs):
    content = bytearray(getattr(_GOOD, name)[: cut or None])
    if content:
        content[at % len(content)] = value
    evidence = replace(_GOOD, **{name: bytes(content)}, pcrs=pcrs or _GOOD.pcrs)
    expected = TpmExpected(nonce=NONCE, authorities=_BASE.authority.pem())
    with suppress(AttestationError):  # any other exception fails the test
        found = attestation.verify_tpm(evidence, expected, NOW)
        assert len(found.checks) == len(attestation.TPM_CHECKS)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr)))
def test_any_file_is_evidence_or_one_error(content):
    whole = content if isinstance(content, bytes) else content.encode()
    for each in (whole, b'{"format": "drydock-tpm-evidence-1", "lease": 1, "nonce": "", "host": "", ' + whole + b"}"):
        with pytest.raises(AttestationError):
            attestation.read_tpm_evidence(each)


def test_fields_of_a_file_are_bounded(made):
    file = json.loads(attestation.write_tpm_evidence(made.evidence(NONCE, LEASE)))
    for changes in (
        {"lease": -1}, {"lease": True}, {"nonce": "xy"}, {"nonce": 5}, {"bank": "sha1"}, {"bank": None},
        {"host": "a\n"}, {"pcrs": []}, {"pcrs": {"0": 1}}, {"pcrs": {"99": "00" * 32}}, {"quote": "!"}, {"ak": None},
        {"ek": "A" * 8000}, {"collected_at": 5}, {"format": "other"},
    ):  # fmt: skip
        with pytest.raises(AttestationError):
            attestation.read_tpm_evidence(json.dumps({**file, **changes}).encode())


def test_an_ecc_endorsement_key_gets_a_credential_too(made):
    key = ec.generate_private_key(ec.SECP256R1())
    numbers = key.public_key().public_numbers()
    area = (
        tpms.u16(tpm.ECC) + tpms.u16(0x000B) + tpms.EK.to_bytes(4, "big") + sized(b"") + tpms.u16(0x0006)
        + tpms.u16(128) + tpms.u16(0x0043) + tpms.u16(0x0010) + tpms.u16(0x0003) + tpms.u16(0x0010)
        + sized(numbers.x.to_bytes(32, "big")) + sized(numbers.y.to_bytes(32, "big"))
    )  # fmt: skip
    ak = attestation.parse_public(ecc_public(made.ak_key))
    assert attestation.make_credential(attestation.parse_public(area), ak).blob


def test_authorities_are_bounded(made):
    with pytest.raises(AttestationError, match="at most 32"):
        attestation.load_authorities(made.authority.pem() * 33)
    assert attestation.load_authorities(b" \n") == ()
    assert Authority("x").certificate().issuer == Authority("x").certificate().subject
