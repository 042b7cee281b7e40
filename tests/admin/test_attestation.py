"""Attestation in the console: the action, and the evidence on the page of the lease."""

from __future__ import annotations

from django.test import Client

from leases.models import LeaseEvidence
from tests.admin.conftest import act, page, rows_of
from tests.client.quotes import MR_TD
from tests.leases.test_attestation import lease, made, settled, tdx
from tests.rest.test_tpm_attestation import kept

__all__ = ["lease", "made", "settled", "tdx"]


def test_a_machine_is_attested_and_its_evidence_shown(site: Client, lease, tdx, settled):
    form = site.get(act("attest", lease))
    assert f"drydock attest {lease.pk}" in form.content.decode()
    done = site.post(act("attest", lease), {"mr_td": MR_TD.hex(), "confirm": "yes"}, follow=True)
    assert "The TDX quote passed 8 of 11 checks." in done.content.decode()
    assert len(tdx.asked) == 1
    shown = site.get(page(lease)).content.decode()
    assert "Not checked: revocation, qe_identity, tcb." in shown
    assert MR_TD.hex()[:16] in shown
    assert f"drydock attest {lease.pk} --fetch FILE" in shown
    row = LeaseEvidence.objects.get()
    assert "Not checked: revocation" in site.get(page(row)).content.decode()
    assert "Not checked: revocation" in site.get(rows_of(LeaseEvidence)).content.decode()


def test_a_failed_check_is_shown(site: Client, lease, tdx, settled):
    site.post(act("attest", lease), {"mr_td": "00" * 48}, follow=True)
    assert "not trustworthy (measurement)" in site.get(page(lease)).content.decode()
    refused = site.post(act("attest", lease), {"mr_td": "abc"}, follow=True).content.decode()
    assert "Give 48 bytes" in refused


def test_evidence_of_a_tpm_and_what_its_host_must_show_are_shown(site: Client, lease):
    kept(lease)
    assert "The TPM quote passed 9 of 11 checks." in site.get(page(lease)).content.decode()
    host = lease.resource
    host.facts = {"attestation": {
        "tpm": {"bank": "sha256", "pcrs": {"0": "10" * 32, "7": "17" * 32}, "registered": [7], "issuer": "CN=vendor",
                "ak_sha256": "ab" * 32},
        "tdx": {"mr_td": MR_TD.hex(), "registered": True},
    }}  # fmt: skip
    host.save(update_fields=["facts"])
    shown = site.get(page(host)).content.decode()
    for text in ("PCR 7 (sha256)", "17" * 32, "CN=vendor", "ab" * 32, "MR_TD", MR_TD.hex(), "first seen", "registered"):
        assert text in shown
    refused = site.post(act("attest", lease), {"kind": "tpm"}, follow=True).content.decode()
    assert "was not enrolled with a TPM" in refused
