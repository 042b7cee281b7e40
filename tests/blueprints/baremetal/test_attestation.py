"""Hosts with emulated TPMs, through the engine: enrolment, evidence of leases, and hosts that are not as enrolled."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.attestation import tsm
from blueprints.models import Blueprint, Credential
from drydock.core.errors import InvalidRequest
from drydock_client import attestation
from drydock_client.attestation import TpmExpected
from interfaces.ssh.pool import POOL
from leases.engine.lifecycle import release
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event, LeaseEvidence, Resource
from leases.operations import machines, resources
from leases.operations.callers import Caller, caller
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal.scripted import PASSWORD, machine, scripted
from tests.blueprints.host_peers import WORKER, Server
from tests.blueprints.tpm_peers import EmulatedTpm, emulated_tpm
from tests.client import quotes
from tests.client.quotes import MR_TD, Maker, pem
from tests.interfaces.tsm_double import double
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "scripted", "soon", "until"]

pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon", "scripted")]
NONCE = "5e" * 32


@pytest.fixture(scope="module")
def tpms() -> Iterator[list[EmulatedTpm]]:
    with emulated_tpm() as one, emulated_tpm() as two:
        yield [one, two]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    """Two SSH servers with the same control account."""
    peers.needs_root()
    with ExitStack() as opened:
        found = []
        for number in range(2):
            running = opened.enter_context(peers.server(f"127.9.{30 + number}.{WORKER + 1}"))
            (running.folder / "control").write_text((found or [running])[0].control.public + "\n")
            found.append(running)
        yield found


@pytest.fixture(autouse=True)
def _as_after_a_reset(tpms: list[EmulatedTpm]) -> Iterator[None]:
    yield
    POOL.close_idle(0)
    for tpm in tpms:
        tpm.stop()
        tpm.start()


@pytest.fixture
def bmcs(servers: list[Server], scripted: None) -> Iterator[None]:
    with machine("bmc-0.test", servers[0], serial="SN0"), machine("bmc-1.test", servers[1], serial="SN1"):
        yield


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def client(owner: User) -> LocalClient:
    return LocalClient(caller(owner))


@pytest.fixture
def rack(
    servers: list[Server], tpms: list[EmulatedTpm], bmcs: None, blueprint: Callable[..., Blueprint], operator: Caller
) -> Callable[..., Resource]:
    """Register a host by its number. The blueprint asks for evidence of its TPM, or for what a test says."""
    Credential.objects.create(name="control", secrets={"private_key": servers[0].control.private})
    Credential.objects.create(name="bmc", secrets={"username": "admin", "password": PASSWORD})

    def register(
        number: int = 0, config: dict[str, Any] | None = None, expected: dict[str, Any] | None = None, **more: Any
    ) -> Resource:
        if not Blueprint.objects.exists():
            asked = {"tpm": {"ca": "".join(tpm.ca for tpm in tpms)}}
            given = {
                "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report",
                "accounts": "shared", "trusted": True, "attestation": asked, **(config or {}),
            }  # fmt: skip
            blueprint("rack", kind="bare_metal", resource_type="host", config=given)
        said = {"name": f"host-{number}", "bmc": {"driver": "scripted", "address": f"bmc-{number}.test"}, **more}
        if Blueprint.objects.filter(config__attestation__tpm__isnull=False).exists():
            said["attestation"] = {"tcti": tpms[number].tcti, **(expected or {})}
        made = resources.register(operator, "rack", {**servers[number].registration(), **said})
        return Resource.objects.get(pk=made.id)

    return register


def retire(operator: Caller, *hosts: Resource) -> None:
    for host in hosts:
        resources.retire(operator, host.pk)
    settle()


def end(until: Callable[..., Any], *leases: Any) -> None:
    for lease in leases:
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed")


def verdict_of(host: Resource) -> str:
    host.refresh_from_db()
    return host.note


def test_a_lease_of_an_enrolled_host_has_evidence_that_its_owner_verifies_alone(
    rack, tpms, ask, until, operator, client
):
    host = until(rack(traits=["tpm", "tdx", "blue"]), state="active")
    assert sorted(host.traits) == ["blue", "tpm"]
    known = host.facts["attestation"]["tpm"]
    assert set(known["pcrs"]) == {"0", "2", "7"}
    lease = until(ask("host", traits=["tpm"], exclusive=True), state="active")
    (found,) = client.evidence(lease.pk)
    assert (found.kind, found.passed, found.actor, found.pcrs) == ("tpm", True, "drydock", known["pcrs"]), found.message
    assert found.message == "The TPM quote passed 11 of 11 checks."
    ak = attestation.fingerprint_of(base64.b64decode(known["ak"]))
    assert found.ak == ak
    evidence = attestation.read_tpm_evidence(base64.b64decode(found.quote))
    assert evidence.lease == lease.pk
    alone = TpmExpected(authorities=tpms[0].ca.encode(), ak=ak)
    verdict = attestation.verify_tpm(evidence, alone, dt.datetime.now(dt.UTC))
    assert (verdict.passed, verdict.unchecked) == (True, ("ek_binding", "pcrs"))
    # On request, with a nonce of the owner's own.
    asked = client.attest(lease.pk, kind="tpm", nonce=NONCE)
    assert (asked.passed, asked.nonce, asked.chosen, asked.actor) == (True, NONCE, True, "ada"), asked.message
    wrong = client.attest(lease.pk, kind="tpm", pcr=["7=" + "ab" * 32])
    assert [one.name for one in wrong.checks if one.outcome == "failed"] == ["pcrs"]
    tpms[0].extend(7)
    later = client.attest(lease.pk, kind="tpm")
    assert f"expected: {known['pcrs']['7']}" in later.message
    assert [one.passed for one in client.evidence(lease.pk)] == [False, False, True, True]
    for given, field in (
        ({"kind": "sev"}, "kind"), ({"kind": "tpm", "pcr": ["x"]}, "pcr"), ({"pcr": ["7=" + "ab" * 32]}, "pcr"),
        ({"kind": "tpm", "mr_td": ["ab" * 48]}, "mr_td"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as caught:
            client.attest(lease.pk, **given)
        assert caught.value.field == field
    end(until, lease)
    retire(operator, host)


def test_a_host_that_started_something_else_is_quarantined_and_the_lease_placed_on_another(
    rack, tpms, ask, until, operator, client
):
    first, second = until(rack(0, traits=["first"]), state="active"), until(rack(1), state="active")
    known = first.facts["attestation"]["tpm"]["pcrs"]["7"]
    tpms[0].extend(7)
    lease = until(ask("host", preferred_traits=["first"], exclusive=True), state="active")
    assert lease.resource_id == second.pk
    first.refresh_from_db()
    assert first.quarantined
    assert first.note.startswith("The TPM quote is not trustworthy (pcrs): PCR 7 is ")
    assert f"expected: {known}" in first.note
    assert [(one.kind, one.passed) for one in client.evidence(lease.pk)] == [("tpm", True), ("tpm", False)]
    assert Event.objects.filter(kind="resource.quarantined", resource=first).count() == 1
    end(until, lease)
    again = until(ask("host", preferred_traits=["first"], exclusive=True), state="active")
    assert again.resource_id == second.pk, "a quarantined host serves nobody"
    end(until, again)
    retire(operator, first, second)


@pytest.mark.slow
def test_a_host_that_gives_no_evidence_is_not_quarantined_and_the_lease_placed_on_another(
    rack, tpms, ask, until, operator, client
):
    first, second = until(rack(0, traits=["first"]), state="active"), until(rack(1), state="active")
    tpms[0].stop()
    lease = until(ask("host", preferred_traits=["first"], exclusive=True), state="active")
    first.refresh_from_db()
    assert (lease.resource_id, first.quarantined) == (second.pk, False)
    said = Event.objects.get(kind="lease.activation_failed", lease=lease).message
    assert "has no TPM 2.0 that answers" in said
    end(until, lease)
    retire(operator, first, second)


@pytest.mark.slow
def test_an_operator_accepts_new_values_of_a_host_after_an_update_of_its_firmware(rack, tpms, ask, until, operator):
    host = until(rack(), state="active")
    before = host.facts["attestation"]["tpm"]["pcrs"]["0"]
    tpms[0].extend(0)
    machines.start_act(operator, host.pk, "attest")
    settle()
    assert "(pcrs): PCR 0 is " in verdict_of(host)
    assert host.quarantined
    machines.start_act(operator, host.pk, "attest", arguments={"renew": True})
    settle()
    host.refresh_from_db()
    assert host.facts["attestation"]["tpm"]["pcrs"]["0"] != before
    assert host.quarantined, "only an operator ends a quarantine"
    resources.unquarantine(operator, host.pk)
    lease = until(ask("host", traits=["tpm"], exclusive=True), state="active")
    assert LeaseEvidence.objects.get(lease=lease).passed
    end(until, lease)
    retire(operator, host)


def test_a_host_that_is_not_as_registered_is_quarantined_at_its_enrolment(rack, tpms, until, operator):
    host = until(rack(expected={"pcrs": {"7": "ab" * 32}}), quarantined=True)
    assert "PCR 7 is " in host.note
    assert host.note.endswith(f"expected: {'ab' * 32}.")
    assert (host.state, host.traits) == ("pending", [])
    resources.change_registration(
        operator, host.pk, {"attestation": {"tcti": tpms[0].tcti, "ek_certificate": "ab" * 32}}
    )
    settle()
    host.refresh_from_db()
    assert f"expected: {'ab' * 32}." in host.message
    with pytest.raises(InvalidRequest, match="no evidence of TDX"):
        resources.change_registration(operator, host.pk, {"attestation": {"mr_td": "ab" * 48}})
    retire(operator, host)


@pytest.fixture(scope="module")
def made() -> Maker:
    return quotes.maker().valid_from(dt.datetime.now(dt.UTC))


def test_a_host_that_is_a_td_has_its_mr_td_and_the_trait(rack, made, ask, until, operator, client, monkeypatch):
    asked = {"tdx": {"root": pem(made.root).decode()}}
    with double(made.quote) as tdx:
        monkeypatch.setattr(tsm, "FOLDER", str(tdx.folder))
        host = until(rack(0, {"attestation": asked}), state="active")
        assert (host.traits, host.facts["attestation"]["tdx"]["mr_td"]) == (["tdx"], MR_TD.hex())
        lease = until(ask("host", traits=["tdx"], exclusive=True), state="active")
        (found,) = client.evidence(lease.pk)
        assert (found.kind, found.passed, found.mr_td) == ("tdx", True, MR_TD.hex()), found.message
        end(until, lease)
        resources.change_registration(operator, host.pk, {"attestation": {"mr_td": "ab" * 48}})
        until(host, quarantined=True)
        assert "(measurement)" in host.note
        retire(operator, host)
