"""The machine of a lease is attested, by a guest whose quotes have keys of our own.

Most leases here are of the fake kind, and this machine's own shell answers for them; one is of a real host.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User

from drydock.core.errors import Conflict, InvalidRequest, NotFound, NotSupported
from drydock_client import attestation
from drydock_client.attestation import Evidence, Expected
from drydock_client.values import EvidenceInfo
from interfaces.command import ShellCommand
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import LeaseEnded
from interfaces.transports import transport_to
from leases.attestation import guest
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.upkeep import pruning
from leases.local import LocalClient
from leases.models import Event, Lease, LeaseEvidence
from leases.operations.callers import caller
from tests.blueprints import host_peers as peers
from tests.blueprints.layered_peers import new_folder
from tests.client import quotes
from tests.client.quotes import MR_TD, Maker, pem
from tests.interfaces.tsm_double import Double, double

NONCE = "5e" * 32


@pytest.fixture(scope="module")
def made() -> Maker:
    return quotes.maker().valid_from(dt.datetime.now(dt.UTC))


@pytest.fixture
def tdx(monkeypatch, made) -> Iterator[Double]:
    """The kernel of a TDX guest."""
    with double(made.quote) as found:
        monkeypatch.setattr(guest, "FOLDER", str(found.folder))
        yield found


@pytest.fixture
def settled(settings, tmp_path, made) -> Callable[..., None]:
    """Set what the server compares quotes with: the root of our quotes, and the given files of collateral."""

    def set_(**files: bytes | None) -> None:
        folder, root = tmp_path / "collateral", tmp_path / "root.pem"
        folder.mkdir(exist_ok=True)
        root.write_bytes(pem(made.root))
        for name, content in files.items():
            (folder / name).write_bytes(content or b"")
        changed = {"attestation_root": root, "attestation_collateral": folder if files else None}
        settings.DRYDOCK = settings.DRYDOCK.model_copy(update=changed)

    set_()
    return set_


@pytest.fixture
def lease(blueprint, ask, until, monkeypatch, tmp_path) -> Lease:
    """An active lease of a host."""
    transport = transport_to(LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home=str(tmp_path)))
    monkeypatch.setattr(specs, "opened", lambda view, name, check: ShellCommand(transport, still_mine=check))
    blueprint(resource_type="host")
    return until(ask("host"), state="active")


@pytest.fixture
def client(owner) -> LocalClient:
    return LocalClient(caller(owner))


def outcomes(found: EvidenceInfo) -> dict[str, str]:
    return {one.name: one.outcome for one in found.checks}


def failed(found: EvidenceInfo) -> set[str]:
    return {one.name for one in found.checks if one.outcome == "failed"}


def test_a_quote_is_bound_to_the_nonce_and_to_the_lease(lease, client, tdx, settled, made):
    settled(**made.files(at=dt.datetime.now(dt.UTC)))
    found = client.attest(lease.pk, nonce=NONCE, mr_td=[MR_TD.hex()])
    assert found.passed, found.message
    assert set(outcomes(found).values()) == {"passed"}
    assert (found.nonce, found.chosen, found.provider, found.actor) == (NONCE, True, "tdx_guest", "ada")
    assert (found.mr_td, found.debug, found.tcb_status, found.fmspc) == (MR_TD.hex(), False, "UpToDate", quotes.FMSPC)
    assert found.root == made.fingerprint
    assert len(found.collateral) == 64
    context = attestation.lease_context(lease.pk)
    assert tdx.asked == [attestation.report_data(bytes.fromhex(NONCE), context)]
    event = Event.objects.get(lease=lease, kind="lease.attested")
    assert (event.message, event.actor) == ("The TDX quote passed 11 of 11 checks.", "ada")
    assert event.details == {"evidence": found.id, "passed": True}
    assert client.evidence(lease.pk) == [found]
    # Whoever has the evidence verifies it again, and needs no server for it.
    kept = Evidence(quote=base64.b64decode(found.quote), nonce=bytes.fromhex(NONCE), lease=lease.pk)
    again = attestation.verify_evidence(kept, Expected(root=made.fingerprint), dt.datetime.now(dt.UTC))
    assert again.passed
    assert again.unchecked == ("revocation", "qe_identity", "tcb", "measurement")


def test_without_a_nonce_the_server_makes_one_and_without_collateral_it_says_so(lease, client, tdx, settled):
    one, two = client.attest(lease.pk), client.attest(lease.pk)
    assert one.passed
    assert not one.chosen
    assert len(bytes.fromhex(one.nonce)) == 32
    assert one.nonce != two.nonce
    assert len({*tdx.asked}) == len({*tdx.names}) == 2
    assert one.unchecked == ("revocation", "qe_identity", "tcb", "measurement")
    assert one.message.endswith("Not checked: revocation, qe_identity, tcb, measurement.")
    assert one.collateral == ""


def test_a_replayed_quote_fails_and_is_kept(lease, client, tdx, settled):
    first = client.attest(lease.pk, nonce=NONCE)
    tdx.answer = lambda _: base64.b64decode(first.quote)
    second = client.attest(lease.pk, nonce="77" * 16)
    assert failed(second) == {"nonce"}
    assert not second.passed
    assert [one.id for one in client.evidence(lease.pk)] == [second.id, first.id]
    said = Event.objects.filter(lease=lease, kind="lease.attested").last()
    assert said.message.startswith("The TDX quote is not trustworthy (nonce): The report data was not made from the")


def test_a_quote_for_another_lease_or_by_another_authority_fails(lease, client, tdx, settled, made):
    other = attestation.report_data(bytes.fromhex(NONCE), attestation.lease_context(lease.pk + 1))
    tdx.answer = lambda _: made.quote(other)
    assert failed(client.attest(lease.pk, nonce=NONCE)) == {"nonce"}
    stranger = Maker(made=made.made, until=made.until)
    tdx.answer = stranger.quote
    assert failed(client.attest(lease.pk)) == {"chain"}


def test_a_machine_with_other_firmware_or_in_debug_mode_fails(lease, client, tdx, settled, made):
    assert failed(client.attest(lease.pk, mr_td=["00" * 48])) == {"measurement"}
    assert client.attest(lease.pk, mr_td=["00" * 48, MR_TD.hex().upper()]).passed
    tdx.answer = lambda asked: made.quote(asked, debug=True, version=5)
    found = client.attest(lease.pk)
    assert (failed(found), found.debug) == ({"debug"}, True)


def test_the_accepted_statuses_of_a_tcb_are_a_setting(lease, client, tdx, settled, made, settings):
    now = dt.datetime.now(dt.UTC)
    settled(**made.files(at=now, tcb=made.tcb_info(at=now, status="SWHardeningNeeded")))
    assert failed(client.attest(lease.pk)) == {"tcb"}
    accepted = ("UpToDate", "SWHardeningNeeded")
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"attestation_tcb": accepted})
    assert client.attest(lease.pk).passed


def test_damaged_collateral_is_the_operators(lease, client, tdx, settled, made):
    settled(tcb=b'{"tcbInfo":')
    with pytest.raises(Conflict, match="tcb: It is neither TCB information") as caught:
        client.attest(lease.pk)
    assert "DRYDOCK_ATTESTATION_COLLATERAL" in caught.value.hint
    assert not tdx.asked
    now = dt.datetime.now(dt.UTC)
    settled(**made.files(at=now, tcb=made.tcb_info(at=now, tcbLevels=[7])))
    with pytest.raises(Conflict, match="tcb: The TCB levels are malformed") as caught:
        client.attest(lease.pk)
    assert "DRYDOCK_ATTESTATION_COLLATERAL" in caught.value.hint
    assert LeaseEvidence.objects.count() == 0


def test_an_answer_that_is_no_quote_is_refused_and_not_kept(lease, client, tdx, settled):
    tdx.answer = lambda _: b"no quote"
    with pytest.raises(Conflict, match=r"something else than a TDX quote\. quote: the header needs 48 bytes"):
        client.attest(lease.pk)
    assert client.evidence(lease.pk) == []
    assert not Event.objects.filter(kind="lease.attested").exists()


def test_only_the_owner_sees_and_asks(lease, client, tdx, settled):
    client.attest(lease.pk)
    bob = LocalClient(caller(User.objects.create_user("bob")))
    for refused in (lambda: bob.attest(lease.pk), lambda: bob.evidence(lease.pk)):
        with pytest.raises(NotFound, match="does not exist or is not yours"):
            refused()
    assert len(tdx.asked) == 1


def test_bad_values_are_refused_before_the_guest_is_asked(lease, client, tdx, settled):
    values = ["ab" * 48] * 17
    for given in ({"nonce": "ab"}, {"nonce": "xy" * 16}, {"mr_td": ["ab"]}, {"mr_td": values}):
        with pytest.raises(InvalidRequest) as caught:
            client.attest(lease.pk, **given)
        assert [caught.value.field] == list(given)
    assert not tdx.asked


def test_a_lease_keeps_the_newest_ten_until_it_is_pruned(lease, client, tdx, settled, settings, until):
    first = client.attest(lease.pk)
    row = LeaseEvidence.objects.get()
    more = [LeaseEvidence(**{f.name: getattr(row, f.name) for f in row._meta.fields if f.name != "id"})
            for _ in range(10)]  # fmt: skip
    LeaseEvidence.objects.bulk_create(more)
    newest = client.attest(lease.pk)
    kept = client.evidence(lease.pk)
    assert (len(kept), kept[0].id) == (10, newest.id)
    assert first.id not in {one.id for one in kept}
    assert LeaseEvidence.objects.count() == 10
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    with pytest.raises(LeaseEnded):
        client.attest(lease.pk)
    assert len(client.evidence(lease.pk)) == 10
    Lease.objects.filter(pk=lease.pk).update(ended_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    walk = next(one for one in pruning.WALKS if one.model is Lease)
    Lease.objects.filter(pk=lease.pk).update(created_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    assert pruning.forget(walk, [lease.pk]) == 1
    assert LeaseEvidence.objects.count() == 0


def test_only_hosts_are_attested(blueprint, ask, until, client, settled):
    blueprint()
    lease = until(ask(), state="active")
    with pytest.raises(NotSupported, match="is of type fake; only a host can be attested"):
        client.attest(lease.pk)


@pytest.mark.slow
def test_a_real_host_is_attested_as_the_account_of_its_lease(blueprint, ask, until, client, tdx, settled):
    folder = new_folder()
    with peers.removed(folder):
        config = {"folder": str(folder), "first_uid": peers.FIRST_UID + 43_000, "uids": 50}
        blueprint("here", kind="local_host", resource_type="host", config=config, max_resources=1)
        lease = until(ask("host"), state="active")
        assert client.attest(lease.pk, nonce=NONCE, mr_td=[MR_TD.hex()]).passed
        if os.geteuid() == 0:
            tdx.folder.chmod(0o755)
            with pytest.raises(NotSupported, match="lets only root make quotes"):
                client.attest(lease.pk)
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed", seconds=60)
