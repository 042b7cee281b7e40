"""Evidence of TPMs over HTTP and from the shell: asked for, listed, saved, and verified without a server."""

from __future__ import annotations

import datetime as dt
import json

from blueprints.records.evidence import Evidence
from drydock.core import clock
from drydock_client import attestation
from drydock_client.attestation import TpmExpected
from leases.engine.records import evidence
from leases.models import Lease
from tests.client.tpms import PCRS, Authority, Tpm, ecc_public
from tests.leases.test_attestation import lease
from tests.rest.test_attestation import drydock

__all__ = ["drydock", "lease"]
NONCE = "5e" * 32


def kept(lease: Lease) -> Tpm:
    """Keep evidence of a TPM with a lease, as the step of an activation does."""
    made = Tpm(authority=Authority("TPM vendor", begins=clock.now() - dt.timedelta(days=1)))
    found = made.evidence(bytes.fromhex(NONCE), lease.pk)
    verdict = attestation.verify_tpm(found, TpmExpected(authorities=made.authority.pem(), proven=True), clock.now())
    document = attestation.write_tpm_evidence(found)
    evidence.keep(
        lease.pk, Evidence(kind="tpm", nonce=found.nonce, document=document, verdict=verdict), actor="drydock"
    )
    return made


def test_evidence_of_a_tpm_is_listed_with_its_pcrs(lease, api, owner):
    made = kept(lease)
    (found,) = api(owner)("GET", f"leases/{lease.pk}/evidence")["results"]
    assert (found["kind"], found["passed"], found["mr_td"]) == ("tpm", True, "")
    assert found["pcrs"] == {str(number): value.hex() for number, value in PCRS.items()}
    assert found["ak"] == attestation.fingerprint_of(ecc_public(made.ak_key))


def test_a_tpm_is_asked_for_by_its_kind(lease, api, owner):
    ada, path = api(owner), f"leases/{lease.pk}/attest"
    for wrong in (
        {"kind": "sev"}, {"kind": 1}, {"kind": "tpm", "pcr": ["7"]}, {"kind": "tpm", "pcr": "7"},
        {"pcr": ["7=" + "ab" * 32]},
        {"kind": "tpm", "pcr": ["99=" + "ab" * 32]}, {"kind": "tpm", "mr_td": ["ab" * 48]},
    ):  # fmt: skip
        ada("POST", path, wrong, code=400)
    refused = ada("POST", path, {"kind": "tpm"}, code=409)
    assert "was not enrolled with a TPM" in json.dumps(refused)


def test_evidence_of_a_tpm_is_saved_and_verified_without_a_server(lease, drydock, tmp_path):
    made = kept(lease)
    file, ca, ak = tmp_path / "evidence", tmp_path / "ca.pem", tmp_path / "ak"
    drydock("attest", lease.pk, "--fetch", file)
    ca.write_bytes(made.authority.pem())
    ak.write_bytes(ecc_public(made.ak_key))
    verify = ("attest", "--verify", file, "--ak", ak)
    assert "The TPM quote passed 7 of 11 checks." in drydock(*verify)
    pcrs = ("--pcr", f"7={PCRS[7].hex()}")
    all_ = (*verify, "--ca", ca, "--nonce", NONCE, *pcrs)
    assert "The TPM quote passed 10 of 11 checks. Not checked: ek_binding." in drydock(*all_)
    found = json.loads(drydock(*all_, "--json"))
    assert (found["passed"], found["lease"], found["pcrs"]["7"]) == (True, lease.pk, PCRS[7].hex())
    assert "not trustworthy (nonce)" in drydock(*verify, "--nonce", "77" * 32, code=1)
    assert "not trustworthy (pcrs): PCR 7 is" in drydock(*verify, "--pcr", "7=" + "ab" * 32, code=1).replace("\n", " ")
    ca.write_bytes(Authority("another").pem())
    assert "(ek_certificate)" in drydock(*verify, "--ca", ca, code=1)
    ak.write_text("ab" * 32)
    assert "not trustworthy (ak)" in drydock(*verify, code=1)
    for words, said in (
        ((*verify, "--mrtd", "ab" * 48), "--mrtd does not concern evidence of a TPM"),
        ((*verify, "--ca", ca, "--root", ca), "--root does not concern evidence of a TPM"),
        ((*verify, "--pcr", "7"), "Give the value of PCR 7"),
        (("attest", "--verify", "/etc/hostname", "--ca", ca, "--ak", ak), "not JSON"),
        (("attest", "--verify", file), "nothing ties the quote to a TPM"),
        (("attest", "--verify", file, "--ca", ca), "nothing ties the quote to a TPM"),
        (("attest", lease.pk, "--ca", ca), "need --verify"),
        (("attest", lease.pk, "--kind", "tpm"), "was not enrolled with a TPM"),
        (("attest", lease.pk, "--kind", "sev"), "Choose from: tdx, tpm"),
    ):
        assert said in " ".join(drydock(*words, code=2).split())
