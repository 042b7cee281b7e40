"""TDX quotes: captured ones of real machines, and ones with keys of our own, changed in every part."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock_client import attestation
from drydock_client.attestation import (
    CHECKS,
    AttestationError,
    Evidence,
    Expected,
    Verdict,
    certificates,
    load_files,
    load_folder,
    parse_quote,
    read_evidence,
    report_data,
    tcb,
    verify,
    verify_evidence,
    write_evidence,
)
from tests.agent import captured
from tests.client import quotes
from tests.client.quotes import AT, DAYS, MR_TD, Maker, pem

HERE = Path(__file__).parent
NONCE, CONTEXT = bytes(range(32)), b"a context"
INTEL_SIGNER = (HERE / "tcb_signing.pem").read_bytes()
"""The certificate "Intel SGX TCB Signing" of 2018, which signed the captured statements of 2023."""
BODY = 48
"""Where the report of the TD begins in version 4; in version 5, 6 bytes later."""


TDX = captured.CAPTURES / "tdx"
needed = pytest.mark.skipif(not TDX.is_dir(), reason="the captured TDX quotes are not beside the repository")


def expected(made: Maker, **changed: Any) -> Expected:
    given = {
        "nonce": NONCE, "context": CONTEXT, "mr_tds": frozenset({MR_TD.hex()}), "root": made.fingerprint,
        "collateral": load_files(made.files()),
    }  # fmt: skip
    return Expected(**{**given, **changed})


def good_quote(**given: Any) -> bytes:
    return quotes.maker().quote(report_data(NONCE, CONTEXT), **given)


def outcome(verdict: Verdict, name: str) -> tuple[str, str]:
    (found,) = [one for one in verdict.checks if one.name == name]
    return found.outcome, found.message


def failed(verdict: Verdict) -> set[str]:
    return {one.name for one in verdict.failed}


@needed
@pytest.mark.parametrize(
    ("name", "version", "at", "mr_td", "rest"),
    [
        ("tdx_prod_quote_SPR_E4.dat", 4, "2023-06-20", "6363b8043668a3ad", 39),
        ("cos-113-tdx-quote.dat", 4, "2025-01-01", "dae67181d3d65e07", 3065),
        ("quote_v5_sample.dat", 5, "2026-02-10", "7348651a34b2d2d3", 0),
    ],
)
def test_a_captured_quote_is_verified_up_to_intels_root(name, version, at, mr_td, rest):
    content = (TDX / name).read_bytes()
    moment = dt.datetime.fromisoformat(at).replace(tzinfo=dt.UTC)
    verdict = verify(content, Expected(), moment)
    assert verdict.passed, verdict.sentence
    assert verdict.unchecked == ("revocation", "qe_identity", "tcb", "measurement", "nonce")
    assert (parse_quote(content).version, verdict.debug) == (version, False)
    assert parse_quote(content).unsigned_rest == rest
    assert verdict.mr_td.startswith(mr_td)
    assert len(verdict.mr_td) == 96
    assert failed(verify(content, Expected(mr_tds=frozenset({verdict.mr_td})), moment)) == set()
    assert failed(verify(content, Expected(mr_tds=frozenset({"00" * 48})), moment)) == {"measurement"}
    assert failed(verify(content, Expected(nonce=NONCE), moment)) == {"nonce"}
    assert failed(verify(content, Expected(), moment.replace(year=2039))) == {"validity"}
    assert failed(verify(content, Expected(root="00" * 32), moment)) == {"chain"}


@needed
def test_a_captured_quote_without_a_nonce_has_empty_report_data():
    verdict = verify((TDX / "cos-113-tdx-quote.dat").read_bytes(), Expected(), AT)
    assert verdict.report_data == "00" * 64


@needed
@pytest.mark.parametrize("name", ["tdx_prod_quote_SPR_E4.dat", "cos-113-tdx-quote.dat", "quote_v5_sample.dat"])
def test_every_bit_of_the_signed_part_counts(name):
    content = bytearray((TDX / name).read_bytes())
    at = dt.datetime(2026, 2, 10, tzinfo=dt.UTC)
    end = len(parse_quote(bytes(content)).signed)
    for place in (*range(28, 48, 5), *range(end - 580, end, 29)):
        content[place] ^= 4
        assert "quote_signature" in failed(verify(bytes(content), Expected(), at)), place
        content[place] ^= 4


@needed
def test_captured_answers_of_intels_service_are_checked_by_its_signature():
    names = ("sample_qeIdentity_response", "sample_tcbInfo_response", "pckcrl", "rootcrl.der")
    files = {name: (TDX / name).read_bytes() for name in names}
    content = (TDX / "tdx_prod_quote_SPR_E4.dat").read_bytes()
    at = dt.datetime(2023, 6, 20, tzinfo=dt.UTC)
    verdict = verify(content, Expected(collateral=load_files({**files, "chain": INTEL_SIGNER})), at)
    assert outcome(verdict, "revocation") == ("passed", "No certificate is revoked.")
    assert outcome(verdict, "qe_identity") == ("passed", "It is Intel's, and its status is UpToDate.")
    # This processor, an early one, is older than every level of its TCB information.
    assert outcome(verdict, "tcb")[1].startswith("The SVNs of the processor are below every level")
    without = verify(content, Expected(collateral=load_files(files)), at)
    assert without.unchecked == ("qe_identity", "tcb", "measurement", "nonce")
    later = verify(content, Expected(collateral=load_files({**files, "chain": INTEL_SIGNER})), at + 60 * DAYS)
    assert failed(later) == {"revocation", "qe_identity", "tcb"}
    changed = files["sample_tcbInfo_response"].replace(b'"OutOfDate"', b'"UpToDate"')
    forged = load_files({**files, "sample_tcbInfo_response": changed, "chain": INTEL_SIGNER})
    assert "was not signed by" in outcome(verify(content, Expected(collateral=forged), at), "tcb")[1]


@needed
def test_a_captured_tcb_information_finds_the_level_of_a_captured_quote():
    collateral = load_files({"tcb": (TDX / "sample_tcbinfo_response_v5").read_bytes()})
    quote = parse_quote((TDX / "quote_v5_sample.dat").read_bytes())
    (pck, *_) = certificates.load_certificates(quote.pck_chain, "quote")
    platform = certificates.platform_of(pck)
    assert (platform.fmspc, platform.pce_id, platform.pce_svn) == ("90c06f000000", "0000", 13)
    assert platform.components[:8] == (4, 4, 2, 2, 4, 1, 0, 5)
    (statement,) = collateral.statements
    assert tcb.platform_level(statement, platform, quote.report) == tcb.Level(status="UpToDate")
    older = replace(quote.report, tee_tcb_svn=bytes([4, 1, 2]) + bytes(13))
    level = tcb.platform_level(statement, platform, older)
    assert (level.status, level.advisories[0]) == ("OutOfDate", "INTEL-SA-01036")


@pytest.mark.parametrize("version", [4, 5])
def test_a_quote_with_everything_to_compare_with_passes_every_check(version):
    made = quotes.maker()
    verdict = verify(good_quote(version=version, rest=bytes(99)), expected(made), AT)
    assert [(one.name, one.outcome) for one in verdict.checks] == [(name, "passed") for name in CHECKS]
    assert verdict.sentence == "The TDX quote passed 11 of 11 checks."
    assert (verdict.tcb_status, verdict.fmspc) == ("UpToDate", quotes.FMSPC)


@pytest.mark.parametrize("version", [4, 5])
def test_each_changed_part_fails_the_check_that_is_about_it(version):
    made, content = quotes.maker(), good_quote(version=version)
    body = BODY + 6 * (version == 5)
    data = len(parse_quote(content).signed) + 4
    qe = data + 128 + 6
    for place, names in {
        30: {"quote_signature"},  # user data of the header
        body + 20: {"quote_signature"},  # MRSEAM
        body + 121: {"quote_signature"},  # an attribute
        body + 120: {"quote_signature", "debug"},
        body + 136: {"quote_signature", "measurement"},
        body + 520: {"quote_signature", "nonce"},
        data: {"quote_signature"},
        data + 64: {"quote_signature", "qe_binding"},
        qe + 64: {"qe_report"},  # MRENCLAVE
        qe + 48: {"qe_report", "qe_identity"},  # attributes
        qe + 128: {"qe_report", "qe_identity"},  # MRSIGNER
        qe + 320: {"qe_report", "qe_binding"},
        qe + 384: {"qe_report"},
        qe + 450: {"qe_binding"},  # authentication data
    }.items():
        changed = bytearray(content)
        changed[place] ^= 1
        assert failed(verify(bytes(changed), expected(made), AT)) == names, place


def test_the_chain_leads_to_the_pinned_root_only():
    made, other = quotes.maker(), Maker()
    content = good_quote(chain=pem(other.pck, other.platform, other.root))
    assert failed(verify(content, expected(made, collateral=load_files({})), AT)) == {"qe_report", "chain"}
    assert failed(verify(good_quote(), expected(other, collateral=load_files({})), AT)) == {"chain"}
    assert failed(verify(good_quote(), expected(made, root=attestation.INTEL_ROOT), AT)) >= {"chain"}
    # The root of somebody else's chain replaced by ours, and a leaf that is no certificate of a processor.
    for chain in (pem(other.pck, other.platform, made.root), pem(made.signer, made.root), b"", b"nothing"):
        verdict = verify(good_quote(chain=chain), expected(made), AT)
        assert "chain" in failed(verdict), chain
        assert not verdict.passed
    # A leaf may issue nothing.
    leaf = Maker(keys={**made.keys, "platform": made.keys["pck"]})
    verdict = verify(good_quote(chain=pem(leaf.pck, made.pck, made.platform, made.root)), expected(made), AT)
    assert "chain" in failed(verdict)


def test_a_root_is_pinned_by_its_certificate():
    made = quotes.maker()
    assert attestation.root_fingerprint(pem(made.root)) == made.fingerprint
    with pytest.raises(AttestationError, match="root certificate: The file has 2 certificates"):
        attestation.root_fingerprint(pem(made.root, made.platform))
    with pytest.raises(AttestationError, match="root certificate"):
        attestation.root_fingerprint(b"no certificate")


def test_certificates_are_valid_at_the_given_time():
    made = quotes.maker()
    without = expected(made, collateral=load_files({}))
    early, late = made.made - DAYS, made.until + DAYS
    assert failed(verify(good_quote(), without, early)) == {"validity"}
    assert failed(verify(good_quote(), without, late)) == {"validity"}
    assert "is valid from 2026-01-30 to" in outcome(verify(good_quote(), without, early), "validity")[1]


@pytest.mark.parametrize("issuer", ["root", "platform"])
def test_a_revoked_certificate_is_found(issuer):
    made = quotes.maker()
    whose = {"root": made.platform, "platform": made.pck}[issuer]
    name = {"root": "rootcrl", "platform": "pckcrl"}[issuer]
    files = made.files(**{name: made.revocation_list(issuer, whose)})
    verdict = verify(good_quote(), expected(made, collateral=load_files(files)), AT)
    assert failed(verdict) == {"revocation"}
    assert "was revoked on 2026-02-28" in outcome(verdict, "revocation")[1]


def test_a_revoked_signer_of_statements_is_found():
    made = quotes.maker()
    files = made.files(rootcrl=made.revocation_list("root", made.signer))
    assert failed(verify(good_quote(), expected(made, collateral=load_files(files)), AT)) == {"qe_identity", "tcb"}


def test_a_revocation_list_must_be_there_current_and_signed():
    made, other = quotes.maker(), Maker()
    old = expected(made, collateral=load_files(made.files(pckcrl=made.revocation_list("platform", at=AT - 60 * DAYS))))
    assert "is out of date" in outcome(verify(good_quote(), old, AT), "revocation")[1]
    early = expected(made, collateral=load_files(made.files(pckcrl=made.revocation_list("platform", at=AT + 9 * DAYS))))
    assert "after 2026-03-01" in outcome(verify(good_quote(), early, AT), "revocation")[1]
    foreign = expected(made, collateral=load_files(made.files(pckcrl=other.revocation_list("platform"))))
    assert "was not signed by it" in outcome(verify(good_quote(), foreign, AT), "revocation")[1]
    missing = expected(made, collateral=load_files(made.files(pckcrl=None)))
    assert outcome(verify(good_quote(), missing, AT), "revocation") == (
        "not checked", "There is no revocation list of Test PCK Platform CA.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("files", "quote", "status", "fails"),
    [
        ({}, {"svn": (5, 1, 4)}, "OutOfDate", {"tcb"}),  # an old TDX module
        ({}, {"svn": (11, 1, 2)}, "OutOfDate", {"tcb"}),  # old microcode
        ({}, {"svn": (11, 1, 1)}, "", {"tcb"}),  # below every level
        ({}, {"svn": (11, 3, 4)}, "", {"tcb"}),  # a TDX module that Intel does not name
        ({}, {"svn": (5, 0, 4)}, "UpToDate", set()),  # TDX 1.0 has no identity of its own
        ({}, {"svn": (4, 0, 4)}, "", {"tcb"}),
        ({}, {"qe_svn": 4}, "OutOfDate", {"tcb", "qe_identity"}),
        ({}, {"qe_svn": 3}, "UpToDate", {"qe_identity"}),
        ({}, {"qe_debug": True}, "UpToDate", {"debug", "qe_identity"}),
        ({"tcb": {"status": "SWHardeningNeeded"}}, {}, "SWHardeningNeeded", {"tcb"}),
        ({"tcb": {"status": "ConfigurationNeeded"}}, {"qe_svn": 4}, "OutOfDateConfigurationNeeded",
         {"tcb", "qe_identity"}),
        ({"tcb": {"status": "Revoked"}}, {}, "Revoked", {"tcb"}),
        ({"tcb": {"status": "Fine"}}, {}, "", {"tcb"}),
        ({"tcb": {"pceId": "0001"}}, {}, "", {"tcb"}),
        ({"identity": {"status": "Revoked"}}, {}, "Revoked", {"tcb", "qe_identity"}),
        ({"identity": {"isvprodid": 1}}, {}, "UpToDate", {"qe_identity"}),
    ],
)  # fmt: skip
def test_the_status_of_a_tcb_is_that_of_the_first_level_that_applies(files, quote, status, fails):
    made = quotes.maker()
    given = {}
    if "tcb" in files:
        given["tcb"] = made.tcb_info(**files["tcb"])
    if "identity" in files:
        given["identity"] = made.qe_identity(**files["identity"])
    verdict = verify(good_quote(**quote), expected(made, collateral=load_files(made.files(**given))), AT)
    assert (verdict.tcb_status, failed(verdict)) == (status, fails)


def test_a_status_can_be_accepted():
    made = quotes.maker()
    collateral = load_files(made.files(tcb=made.tcb_info(status="SWHardeningNeeded")))
    accepted = frozenset({"UpToDate", "SWHardeningNeeded"})
    assert verify(good_quote(), expected(made, collateral=collateral, tcb_statuses=accepted), AT).passed


def test_tcb_information_about_another_processor_is_not_compared():
    made = quotes.maker()
    files = made.files(tcb=made.tcb_info(fmspc="50806f000000"))
    verdict = verify(good_quote(), expected(made, collateral=load_files(files)), AT)
    assert outcome(verdict, "tcb") == ("not checked", f"No TCB information for the FMSPC {quotes.FMSPC} was given.")


def test_statements_need_intels_signer_a_good_chain_and_the_right_time():
    made, other = quotes.maker(), Maker()

    def said(**files: bytes | None) -> str:
        verdict = verify(good_quote(), expected(made, collateral=load_files(made.files(**files))), AT)
        assert "tcb" in failed(verdict)
        return outcome(verdict, "tcb")[1]

    assert "was not signed by" in said(tcb=other.tcb_info())
    assert "The chain of the collateral is not good" in said(chain=pem(other.signer, other.root))
    assert "is out of date" in said(tcb=made.tcb_info(at=AT - 60 * DAYS))
    assert "after 2026-03-01" in said(tcb=made.tcb_info(at=AT + 9 * DAYS))


def test_only_the_signed_bytes_of_a_statement_are_believed():
    made = quotes.maker()
    good, better = made.tcb_info(status="OutOfDate"), made.tcb_info()
    twice = good[:-1] + b"," + better[1 : better.index(b',"signature"')] + b"}"
    verdict = verify(good_quote(), expected(made, collateral=load_files(made.files(tcb=twice))), AT)
    assert (verdict.tcb_status, failed(verdict)) == ("OutOfDate", {"tcb"})
    with pytest.raises(AttestationError, match="neither TCB information nor"):
        load_files({"tcb": good.decode().encode("utf-16-le")})


def test_a_chain_is_read_from_the_header_of_intels_service_too():
    made = quotes.maker()
    header = pem(made.signer, made.root).decode().replace(" ", "%20").replace("\n", "%0A").encode()
    assert len(load_files({"header": header}).signer_chain) == 2
    dumped = b"HTTP/1.1 200 OK\r\nRequest-ID: 1%2F2\r\nTCB-Info-Issuer-Chain: " + header + b"\r\nDate: now\r\n\r\n"
    assert len(load_files({"headers": dumped}).signer_chain) == 2
    of_the_list = pem(made.platform, made.root).decode().replace(" ", "%20").replace("\n", "%0A").encode()
    assert load_files({"headers": b"SGX-PCK-CRL-Issuer-Chain: " + of_the_list}).signer_chain == ()


def test_collateral_is_read_from_a_folder(tmp_path):
    made = quotes.maker()
    for name, content in {**made.files(), "notes.txt": b"as of today"}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "old").mkdir()
    found = load_folder(tmp_path)
    assert (len(found.statements), len(found.signer_chain), len(found.revocation_lists)) == (2, 2, 2)
    assert found.unused == ("notes.txt",)
    assert len(found.digest) == 64
    (tmp_path / "notes.txt").write_bytes(b"other")
    assert load_folder(tmp_path).digest != found.digest
    with pytest.raises(AttestationError, match="It cannot be read: No such file"):
        load_folder(tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "neither TCB information nor"),
        (b'{"tcbInfo": {"id": "SGX"}, "signature": ""}', "neither TCB information nor"),
        (b"[" * 100_000, ""),
        (b'{"a":' * 100_000, "neither TCB information nor"),
        (b"\x30\x80", "The revocation list cannot be read"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "The certificates cannot be read"),
    ],
)
def test_damaged_collateral_is_refused_by_name(content, said):
    if not said:
        assert load_files({"odd.file": content}).unused == ("odd.file",)
        return
    with pytest.raises(AttestationError, match=r"odd\.file: ") as caught:
        load_files({"odd.file": content})
    assert said in caught.value.what


@pytest.mark.parametrize(
    "changed",
    [{"tcbLevels": None}, {"tcbLevels": [{}]}, {"tdxModuleIdentities": 5}, {"tdxModule": None},
     {"tcbLevels": [{"tcb": {"sgxtcbcomponents": [1], "pcesvn": 1}, "tcbStatus": "UpToDate"}]},
     {"tdxModuleIdentities": [{"id": "TDX_01", "mrsigner": "xx"}]}],
)  # fmt: skip
def test_malformed_statements_raise_the_one_error(changed):
    made = quotes.maker()
    given = expected(made, collateral=load_files(made.files(tcb=made.tcb_info(**changed))))
    about_the_module = "tdxModule" in changed
    svn = (5, 0, 4) if about_the_module else (11, 1, 4)  # without or with an identity of the TDX module
    with pytest.raises(AttestationError) as caught:
        verify(good_quote(svn=svn), given, AT)
    assert caught.value.where == "tcb"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "quote: the header needs 48 bytes at offset 0, and 0 are left"),
        (b"\x03\x00" + bytes(700), "Version 3 cannot be read"),
        (b"\x04\x00\x03\x00" + bytes(700), "Key type 3"),
        (b"\x04\x00\x02\x00" + bytes(700), "of type 0x0"),
        (bytes(40_000), "at most 32768 are read"),
        (b"\x05\x00\x02\x00\x81" + bytes(43) + b"\x01\x00" + bytes(700), "Type 1 is not a report of a TD"),
        (b"\x05\x00\x02\x00\x81" + bytes(43) + b"\x03\x00\xff\xff\xff\xff" + bytes(700), "not 4294967295"),
    ],
)
def test_what_is_no_tdx_quote_is_refused(content, said):
    with pytest.raises(AttestationError) as caught:
        verify(content, Expected(), AT)
    assert said in str(caught.value)


@pytest.mark.parametrize("version", [4, 5])
def test_a_quote_that_is_cut_off_anywhere_is_refused(version):
    content = good_quote(version=version)
    for length in {*range(0, len(content), 37), len(content) - 1}:
        with pytest.raises(AttestationError, match="bytes"):
            parse_quote(content[:length])


@given(content=st.binary(max_size=6000))
@settings(max_examples=60, deadline=None)
def test_no_bytes_make_the_parser_fail_otherwise(content):
    with contextlib.suppress(AttestationError):
        verify(content, Expected(), AT)


@given(changes=st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4),
       version=st.sampled_from([4, 5]), cut=st.integers(0, 40))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_no_change_of_a_quote_makes_the_verification_fail_otherwise(changes, version, cut):
    content = bytearray(good_quote(version=version))
    original = bytes(content)
    for place, new in changes:
        place %= len(content)
        content[place : place + len(new)] = new[: len(content) - place]
    changed = bytes(content[: len(content) - cut])
    try:
        verdict = verify(changed, expected(quotes.maker(), collateral=load_files({})), AT)
    except AttestationError:
        return
    assert changed == original or not verdict.passed or parse_quote(changed).signed == parse_quote(original).signed


@given(content=st.binary(max_size=600), name=st.sampled_from(["tcb", "identity", "chain", "rootcrl", "pckcrl"]),
       place=st.integers(0, 3000))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_no_collateral_makes_the_verification_fail_otherwise(content, name, place):
    files = quotes.maker().files()
    whole = files[name]
    files[name] = whole[: place % len(whole)] + content + whole[place % len(whole) + len(content) :]
    with contextlib.suppress(AttestationError):
        verify(good_quote(), expected(quotes.maker(), collateral=load_files(files)), AT)


@given(place=st.integers(0, 1000), content=st.binary(min_size=1, max_size=40), cut=st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_no_extension_of_a_certificate_makes_its_reader_fail_otherwise(place, content, cut):
    good = quotes.sgx_extension()
    place %= len(good)
    changed = good[:place] + content + good[place + len(content) :]
    for one in (content, changed, changed[: cut % len(changed)], good[:place]):
        with contextlib.suppress(AttestationError):
            certificates.read_extension(one)


def test_the_extension_of_a_certificate_names_the_processor():
    found = certificates.read_extension(quotes.sgx_extension())
    assert found == certificates.Platform(fmspc=quotes.FMSPC, pce_id="0000", components=quotes.SVNS, pce_svn=13)


def test_evidence_is_written_read_and_verified_anew():
    made = quotes.maker()
    quote = made.quote(report_data(NONCE, attestation.lease_context(7)))
    evidence = Evidence(quote=quote, nonce=NONCE, lease=7, provider="tdx_guest", collected_at=AT)
    assert read_evidence(write_evidence(evidence)) == evidence
    wanted = Expected(root=made.fingerprint)
    assert outcome(verify_evidence(evidence, wanted, AT), "nonce")[0] == "passed"
    # The same quote for another lease, or under another nonce.
    assert failed(verify_evidence(replace(evidence, lease=8), wanted, AT)) == {"nonce"}
    assert failed(verify_evidence(evidence, replace(wanted, nonce=b"of the owner's own"), AT)) == {"nonce"}
    assert read_evidence(quote).quote == quote
    assert "nonce" in verify_evidence(read_evidence(quote), wanted, AT).unchecked


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"format": "other"}, "evidence"), ({"lease": "7"}, "evidence: lease"), ({"lease": -1}, "evidence: lease"),
        ({"nonce": "zz"}, "nonce"), ({"nonce": "aa"}, "nonce"), ({"quote": "§"}, "evidence: quote"),
        ({"quote": None}, "evidence: quote"), ({"collected_at": "soon"}, "evidence: collected_at"),
    ],
)  # fmt: skip
def test_damaged_evidence_says_where(changed, where):
    said = json.loads(write_evidence(Evidence(quote=b"x", nonce=NONCE, lease=7)))
    with pytest.raises(AttestationError) as caught:
        read_evidence(json.dumps({**said, **changed}).encode())
    assert caught.value.where == where


@given(content=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda it: b"{" + it)))
@settings(max_examples=50, deadline=None)
def test_no_file_of_evidence_makes_its_reader_fail_otherwise(content):
    with contextlib.suppress(AttestationError):
        read_evidence(content)


def test_nonces_and_values_of_mr_td_are_checked():
    assert attestation.nonce_of("ab" * 16) == b"\xab" * 16
    assert attestation.mr_td_of("AB" * 48) == "ab" * 48
    for given_ in ("", "ab" * 15, "ab" * 65, "x" * 32):
        with pytest.raises(AttestationError, match="nonce: Give 16 to 64 bytes"):
            attestation.nonce_of(given_)
    with pytest.raises(AttestationError, match="MR_TD: Give 48 bytes"):
        attestation.mr_td_of("ab")


ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
from drydock_client.attestation import AttestationError, Evidence, write_evidence, read_evidence, parse_quote
import drydock_client.attestation as a, datetime
assert read_evidence(write_evidence(Evidence(quote=b"x"))).quote == b"x"
try:
    a.verify(b"", a.Expected(), datetime.datetime.now(datetime.UTC))
except AttestationError as error:
    print(error)
"""


def test_the_package_is_imported_without_cryptography():
    root = str(HERE.parents[1])
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, root], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == ("verification: The package cryptography is missing. Run: pip install 'cryptography>=50'\n"), (
        run.stderr
    )
    said = tomllib.loads((HERE.parents[1] / "clients" / "python" / "pyproject.toml").read_text())
    assert said["project"]["optional-dependencies"]["attest"] == ["cryptography>=50"]


def test_only_keys_on_p256_sign():
    from cryptography.hazmat.primitives.asymmetric import ed25519

    assert not certificates.signed_by(bytes(64), bytes(64), b"")
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    assert not certificates.signed_by(raw * 2, bytes(64), b"")
