"""Attestation over HTTP and from the shell: what is sent, answered, saved and verified again."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from django.contrib.auth.models import User
from typer.testing import CliRunner

from drydock.cli.program import app
from drydock.cli.toolkit import options
from leases.local import LocalClient
from leases.operations.callers import caller
from leases.places import PLACES
from tests.client.quotes import MR_TD, pem
from tests.leases.test_attestation import NONCE, lease, made, settled, tdx

__all__ = ["lease", "made", "settled", "tdx"]


@pytest.fixture
def drydock(owner, monkeypatch):
    """Run the program in this process, as the owner of the lease."""
    monkeypatch.setattr(options, "client", lambda *_: LocalClient(caller(owner)))

    def run(*words: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_evidence_is_collected_and_listed_over_http(lease, tdx, settled, api, owner):
    ada = api(owner)
    found = ada("POST", f"leases/{lease.pk}/attest", {"nonce": NONCE, "mr_td": [MR_TD.hex()]})
    assert (found["passed"], found["nonce"], found["mr_td"]) == (True, NONCE, MR_TD.hex())
    assert {one["outcome"] for one in found["checks"]} == {"passed", "not checked"}
    assert ada("POST", f"leases/{lease.pk}/attest", {})["chosen"] is False
    assert [one["chosen"] for one in ada("GET", f"leases/{lease.pk}/evidence")["results"]] == [False, True]
    for wrong in ({"nonce": "ab"}, {"nonce": 7}, {"mr_td": "ab"}, {"mr_td": ["ab"]}, {"more": 1}):
        ada("POST", f"leases/{lease.pk}/attest", wrong, code=400)
    assert len(tdx.asked) == 2
    reader, bob = api(owner, "read"), api(User.objects.create_user("bob"))
    reader("POST", f"leases/{lease.pk}/attest", {}, code=403)
    assert len(reader("GET", f"leases/{lease.pk}/evidence")["results"]) == 2
    bob("POST", f"leases/{lease.pk}/attest", {}, code=404)
    bob("GET", f"leases/{lease.pk}/evidence", code=404)


def test_evidence_is_saved_and_verified_without_a_server(lease, tdx, settled, drydock, made, tmp_path):
    said = drydock("attest", lease.pk, "--fetch", tmp_path / "file", code=3)
    assert f"Collect it: drydock attest {lease.pk}" in said
    said = drydock("attest", lease.pk, "--nonce", NONCE, "--mrtd", MR_TD.hex())
    assert said.startswith("The TDX quote passed 8 of 11 checks. Not checked: revocation, qe_identity, tcb.")
    assert f"{NONCE} (yours)" in said
    file, root, folder = tmp_path / "evidence", tmp_path / "ca.pem", tmp_path / "intel"
    drydock("attest", lease.pk, "--fetch", file)
    assert file.stat().st_mode & 0o777 == 0o600
    root.write_bytes(pem(made.root))
    folder.mkdir()
    now = dt.datetime.now(dt.UTC)
    for name, content in made.files(at=now, tcb=made.tcb_info(at=now, status="SWHardeningNeeded")).items():
        (folder / name).write_bytes(content)
    asked = len(tdx.asked)
    verify = ("attest", "--verify", file, "--root", root)
    assert "passed 7 of 11" in drydock(*verify)
    assert "passed 8 of 11" in drydock(*verify, "--nonce", NONCE, "--mrtd", "00" * 48, "--mrtd", MR_TD.hex())
    assert "not trustworthy (nonce)" in drydock(*verify, "--nonce", "77" * 32, code=1)
    assert "not trustworthy (measurement)" in drydock(*verify, "--mrtd", "00" * 48, code=1)
    assert "not trustworthy (chain)" in drydock("attest", "--verify", file, code=1)
    assert "not trustworthy (validity)" in drydock(*verify, "--at", "2020-01-01T00:00Z", code=1)
    assert "SWHardeningNeeded" in drydock(*verify, "--collateral", folder, code=1)
    (folder / "notes").write_text("as of today")
    said = drydock(*verify, "--collateral", folder, "--accept", "SWHardeningNeeded")
    assert said.rstrip().endswith(f"Files in {folder} that are not collateral: notes")
    found = json.loads(drydock(*verify, "--collateral", folder, "--accept", "SWHardeningNeeded", "--json"))
    assert (found["passed"], found["tcb_status"], found["lease"]) == (True, "SWHardeningNeeded", lease.pk)
    assert len(tdx.asked) == asked


def test_a_request_that_waits_for_the_guest_holds_a_place(lease, tdx, settled, api, owner, made):
    held: list[int] = []

    def answer(asked: bytes) -> bytes:
        held.append(PLACES._taken.total())
        return made.quote(asked)

    tdx.answer = answer
    api(owner)("POST", f"leases/{lease.pk}/attest", {})
    assert held == [1]


def test_a_failed_check_ends_with_an_exit_code(lease, tdx, settled, drydock, made):
    tdx.answer = lambda asked: made.quote(asked, debug=True)
    assert "not trustworthy (debug)" in drydock("attest", lease.pk, code=1)
    assert json.loads(drydock("attest", lease.pk, "--json", code=1))["debug"] is True


WRONG = [
    ((), "Give a lease, or --verify FILE"),
    (("7", "--verify", "x"), "takes no lease"),
    (("7", "--root", "x"), "need --verify"),
    (("7", "--fetch", "x", "--nonce", "ab"), "takes no --nonce"),
    (("--verify", "/nonexistent"), "cannot be read: No such file"),
    (("--verify", "/etc/hostname"), "quote"),
    (("--verify", "x", "--accept", "Fine"), "Fine is not a TCB status"),
    (("--verify", "x", "--nonce", "ab"), "Give 16 to 64 bytes"),
    (("--verify", "x", "--mrtd", "ab"), "Give 48 bytes"),
    (("--verify", "x", "--root", "/etc/hostname"), "certificates cannot be read"),
    (("--verify", "x", "--collateral", "/nonexistent"), "It cannot be read: No such file"),
]


def test_wrong_words_are_explained(drydock):
    for words, said in WRONG:
        assert said in " ".join(drydock("attest", *words, code=2).split()), words
