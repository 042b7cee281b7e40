"""Credentials of a DPU on real API servers of two versions of DPF, with real accounts of the DPU cluster."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import pytest

from blueprints.answers import Answer, Ready, Wait
from blueprints.dpf import credentials as objects
from blueprints.dpu.dpf import leasing, revocation
from blueprints.dpu.dpf.config import Config
from blueprints.dpu.dpf.credentials import DpfCredentials
from blueprints.dpu.dpf.kind import Dpf
from blueprints.kube import CredentialRefused, connect
from blueprints.specs import LeaseView, Spec
from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.deadline import Deadline
from interfaces.dpu_services import Credentials, CredentialState
from interfaces.errors import CredentialMissing, LeaseEnded, ServiceChanged
from tests.dpf.accounts import least
from tests.dpf.conftest import FLAVOR
from tests.dpf.test_services import Site
from tests.dpus.api import ACCOUNT, CREDENTIAL, SECRET, Api, name_of
from tests.dpus.conftest import _database as _database
from tests.dpus.credentials import FORGETTING, ISSUING, NO_CLUSTER
from tests.dpus.user import URL, User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KIND = CREDENTIAL.name


class Place(Site):
    """A DPU cluster whose DPUs have leases with credentials."""

    def lease(self, number: int, tags: dict[str, str], **config: Any) -> LeaseView:
        given = {"credentials": {"namespace": self.state.apart, "longest": 1800}, **config}
        return super().lease(number, tags, **given)

    def of(self, lease: LeaseView) -> Credentials:
        return self.services(lease).credentials

    def left(self) -> list[str]:
        """Return requests, Secrets and accounts that are there."""
        accounts = [api for api in self.state.account_links.apis]
        return [
            *(f"request {name_of(one)}" for one in self.user.all(CREDENTIAL)),
            *(f"secret {name_of(one)}" for one in self.state.secrets.all(SECRET) if one["type"] == "Opaque"),
            *(f"account {name_of(a)}" for api in accounts for a in api.all(ACCOUNT) if name_of(a) != "default"),
        ]

    def done(self, act: Callable[[Spec, Any], Answer], lease: LeaseView, tags: dict[str, str]) -> Answer:
        """Call a step until it is done, each time with the memo of the last answer, while DPF works."""
        memo: Any = {}
        for _ in range(10):
            answer = act(self.spec(lease, tags), memo)
            if not isinstance(answer, Wait):
                return answer
            memo = answer.memo
            self.turn()
        return answer


@pytest.fixture
def place(dpf: User) -> Place:
    return Place(dpf, least(dpf))


def works(kubeconfig: str) -> bool:
    """Return whether a kubeconfig is accepted by its API server."""
    with connect({"kubeconfig": kubeconfig}, deadline=60.0) as cluster:
        try:
            cluster.document("/api")
        except CredentialRefused:
            return False
    return True


def is_refused(kubeconfig: str) -> bool:
    """Return whether a kubeconfig is refused, once the server has noticed that its account is gone."""
    for _ in range(120):
        if not works(kubeconfig):
            return True
        time.sleep(0.25)
    return False


def test_a_credential_works_is_shown_once_and_ends_with_its_removal(place: Place) -> None:
    credentials = place.of(place.lease(1, place.dpu(1)))
    made = credentials.request("metrics", seconds=600)
    assert made.state is CredentialState.PENDING
    with pytest.raises(Conflict, match="not been issued"):
        credentials.show("metrics")
    place.turn()
    assert [one.state for one in credentials.list()] == [CredentialState.READY]
    kubeconfig = credentials.show("metrics")
    assert works(kubeconfig)
    assert [one.state for one in credentials.list()] == [CredentialState.SHOWN]
    with pytest.raises(Conflict, match="was shown already"):
        credentials.show("metrics")
    assert len(place.left()) == 3
    credentials.remove("metrics")
    place.turn()
    assert place.left() == []
    with pytest.raises(CredentialMissing):
        credentials.show("metrics")
    assert is_refused(kubeconfig)


def test_the_end_of_a_lease_leaves_no_request_secret_or_account_and_others_keep_theirs(place: Place) -> None:
    tags, others = place.dpu(1), place.dpu(2)
    lease, other = place.lease(1, tags), place.lease(2, others)
    for one in (lease, other):
        place.of(one).request("metrics", seconds=600)
    place.turn()
    kubeconfig = place.of(lease).show("metrics")
    place.over.add(1)
    assert isinstance(place.done(revocation.revoke_own, lease, tags), Ready)
    name = objects.name_of(other.key, "metrics")
    assert sorted(place.left()) == [f"account {name}", f"request {name}", f"secret {name}"]
    assert is_refused(kubeconfig)
    assert works(place.of(other).show("metrics"))
    with pytest.raises(LeaseEnded):
        place.of(lease).list()


def test_what_dpf_forgets_is_removed_and_a_step_that_is_repeated_finds_it(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).request("metrics", seconds=600)
    place.turn()
    place.state.faults.stick(FORGETTING, kind=KIND)
    noted = revocation.revoke_own(place.spec(lease, tags), {})
    assert isinstance(noted, Wait)
    assert len(place.user.all(CREDENTIAL)) == 1, "nothing is deleted before it is noted"
    for _ in range(2):  # the worker dies after the call, which the next one repeats with the same memo
        revocation.revoke_own(place.spec(lease, tags), noted.memo)
        place.turn()
    assert isinstance(revocation.revoke_own(place.spec(lease, tags), noted.memo), Ready)
    assert place.left() == []


@pytest.mark.parametrize("phase", ["activate", "destroy", "hand_over"])
def test_the_next_lease_the_destruction_and_a_transfer_begin_without_credentials(place: Place, phase: str) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).request("metrics", seconds=600)
    place.turn()
    step = next(one for one in getattr(Dpf(), phase)() if one.name == "credentials")
    assert isinstance(place.done(step.act, lease, tags), Ready)
    assert place.left() == []


def test_a_release_waits_for_finalizers_and_names_them(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    place.of(lease).request("metrics", seconds=600)
    place.turn()
    place.state.faults.keep_finalizer(KIND)
    answer = place.done(revocation.revoke_own, lease, tags)
    assert isinstance(answer, Wait)
    assert "dpu.nvidia.com/dpuservicecredentialrequest" in answer.sentence
    assert [one.state for one in place.of(lease).list()] == [CredentialState.REMOVING]
    place.state.faults.finalizers.clear()
    assert isinstance(place.done(revocation.revoke_own, lease, tags), Ready)


def test_a_health_check_removes_those_of_leases_that_are_over_and_those_that_have_expired(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags)
    for name in ("expired", "valid"):
        place.of(lease).request(name, seconds=600)
    place.turn()

    def expire(body: dict[str, Any]) -> None:
        past = clock.now() - dt.timedelta(seconds=1)
        body["metadata"]["annotations"][objects.UNTIL] = f"{past:%Y-%m-%dT%H:%M:%SZ}"

    place.state.stranger.change(CREDENTIAL, objects.name_of(lease.key, "expired"), expire)
    assert [one.state.value for one in place.of(lease).list()] == ["expired", "ready"]
    with pytest.raises(Conflict, match="has expired"):
        place.of(lease).show("expired")

    assert place.strays(lease, tags) == [objects.name_of(lease.key, "expired")]
    place.turn()
    assert place.strays(lease, tags) == []
    place.over.add(1)
    assert place.strays(lease, tags) == [objects.name_of(lease.key, "valid")]
    place.turn()
    assert place.left() == []


def test_a_request_that_comes_after_the_release_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = place.lease(1, place.dpu(1))
    create = DpfCredentials.create

    def released(self: DpfCredentials, *given: Any) -> Any:
        place.over.add(1)
        return create(self, *given)

    monkeypatch.setattr(DpfCredentials, "create", released)
    with pytest.raises(LeaseEnded):
        place.of(lease).request("metrics", seconds=600)
    place.turn()
    assert place.left() == []


def test_of_two_readers_one_gets_it(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    backend = DpfCredentials(lease, lease.secrets[leasing.PROOF])
    place.of(lease).request("metrics", seconds=600)
    place.turn()
    found = backend.find("metrics", Deadline(60))
    assert found is not None
    assert works(backend.show(found, Deadline(60)))
    with pytest.raises(ServiceChanged):
        backend.show(found, Deadline(60))


def test_what_is_not_issued_says_why(place: Place) -> None:
    credentials = place.of(place.lease(1, place.dpu(1)))
    place.state.faults.stick(ISSUING, kind=KIND)
    credentials.request("metrics", seconds=600)
    place.turn()
    (shown,) = credentials.list()
    assert (shown.state, NO_CLUSTER in shown.messages[0]) == (CredentialState.PENDING, True)
    with pytest.raises(Conflict, match=NO_CLUSTER):
        credentials.show("metrics")


def test_secrets_of_others_are_not_overwritten_and_bounds_are_those_of_the_config(place: Place) -> None:
    lease = place.lease(1, place.dpu(1))
    name = objects.name_of(lease.key, "metrics")
    theirs = Api(place.user.kubeconfig, namespace=place.state.apart, manager="stranger")
    theirs.create(SECRET, {"metadata": {"name": name}, "type": "Opaque", "data": {}})
    with pytest.raises(Conflict, match=name):
        place.of(lease).request("metrics", seconds=600)
    with pytest.raises(InvalidRequest) as refused:
        place.of(lease).request("other", seconds=1801)
    assert refused.value.field == "ttl"
    assert place.left() == [f"secret {name}"]
    theirs.close()


def test_there_are_none_unless_the_config_sets_a_namespace_aside(place: Place) -> None:
    tags = place.dpu(1)
    lease = place.lease(1, tags, credentials=None)
    with pytest.raises(NotSupported):
        place.of(lease).list()
    assert isinstance(place.done(revocation.revoke_own, lease, tags), Ready)
    with pytest.raises(ValueError, match="must not be the namespace of the DPF objects"):
        Config(credential="a", namespace="dpf", image=URL, flavor=FLAVOR, credentials={"namespace": "dpf"})  # type: ignore[arg-type]
