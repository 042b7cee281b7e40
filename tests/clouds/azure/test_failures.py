"""What goes wrong at Azure, and what the client makes of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from blueprints.answers import Failed, Scope, Unknown, Wait
from blueprints.azure.client import Azure
from blueprints.azure.config import Credential
from blueprints.azure.errors import CODES, meaning
from blueprints.azure.errors import refused as arm_error
from blueprints.cloud.faults import CloudError, Meaning, Reach
from blueprints.cloud.values import Instance, Lifecycle, Market, Underway
from tests.clouds.azure.conftest import TAGS, USUAL, Bench, order, until
from tests.clouds.azure.double import AzureDouble

MACHINES = "/virtualMachines/"


def refused(bench: Bench, **other: object) -> CloudError:
    """What a create raises, at once or in the end."""
    asked = order(**other)
    with pytest.raises(CloudError) as caught:
        bench.made(asked)
    return caught.value


def test_a_lost_answer_is_ambiguous_and_the_machine_is_found(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.lose()
    with pytest.raises(CloudError) as caught:
        bench.azure.create(USUAL, prepared)

    assert caught.value.meaning is Meaning.AMBIGUOUS
    assert isinstance(caught.value.answer(), Unknown)
    puts = [call for call in bench.double.calls if call.method == "PUT" and MACHINES.lower() in call.path.lower()]
    assert len(puts) == 1
    found = until(lambda: bench.azure.find(USUAL))
    assert bench.finished(USUAL, bench.azure.create(USUAL, prepared)).id == found.id


def test_an_error_after_the_call_has_happened_is_ambiguous(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.fail(before=False, method="PUT", path=MACHINES)
    with pytest.raises(CloudError) as caught:
        bench.azure.create(USUAL, prepared)
    assert (caught.value.meaning, caught.value.provider_code) == (Meaning.AMBIGUOUS, "InternalServerError")
    assert until(lambda: bench.azure.find(USUAL)).key == "dd-one"


def test_an_error_before_leaves_nothing_and_the_same_call_works_later(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.fail(before=True, method="PUT", path=MACHINES, status=503, code="ServiceUnavailable")
    with pytest.raises(CloudError) as caught:
        bench.azure.create(USUAL, prepared)
    assert caught.value.meaning is Meaning.UNAVAILABLE
    assert bench.azure.find(USUAL) is None
    assert bench.finished(USUAL, bench.azure.create(USUAL, prepared)).state is Lifecycle.RUNNING


def test_a_reading_call_that_fails_is_an_outage_and_no_absence(bench: Bench) -> None:
    made = bench.made()
    for call in (lambda: bench.read(made), lambda: bench.azure.find(USUAL), lambda: bench.azure.instances("", TAGS)):
        bench.double.fail(before=True, method="GET", path="virtualmachines")
        with pytest.raises(CloudError) as caught:
            call()
        assert caught.value.meaning is Meaning.UNAVAILABLE
    assert bench.read(made) == made


def test_a_lost_delete_is_ambiguous_and_harmless(bench: Bench) -> None:
    made = bench.made()
    bench.double.lose(method="DELETE")
    with pytest.raises(CloudError) as caught:
        bench.azure.terminate(made)
    assert caught.value.meaning is Meaning.AMBIGUOUS
    bench.ended(made)
    assert bench.double.objects() == {}


@pytest.mark.parametrize("code", ["AllocationFailed", "ZonalAllocationFailed", "OverconstrainedZonalAllocationRequest"])
def test_an_allocation_that_fails_later_leaves_a_failed_machine(bench: Bench, code: str) -> None:
    bench.double.fail_allocation(code, size=USUAL.type, location="eastus", zone="1", message="Too many want it.")
    error = refused(bench)

    assert (error.meaning, error.provider_code) == (Meaning.NO_CAPACITY, code)
    assert "Too many want it." in error.message
    answer = error.answer()
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.OFFER
    left = bench.azure.find(USUAL)
    assert left is not None
    assert (left.state, code in left.reason) == (Lifecycle.FAILED, True)
    assert [one.state for one in bench.azure.instances("", TAGS)] == [Lifecycle.FAILED]
    bench.ended(left)
    assert bench.double.objects() == {}
    assert bench.made(order(zone="2", token="attempt-2")).zone == "2"


def test_a_lost_answer_and_a_failed_allocation_still_tell_why(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.fail_allocation(size=USUAL.type)
    bench.double.lose()
    with pytest.raises(CloudError):
        bench.azure.create(USUAL, prepared)
    until(lambda: bench.azure.find(USUAL).state is Lifecycle.FAILED)
    with pytest.raises(CloudError) as caught:
        bench.azure.created(USUAL, {})
    assert (caught.value.meaning, caught.value.provider_code) == (Meaning.NO_CAPACITY, "AllocationFailed")


def test_what_is_sold_out_is_refused_at_once(bench: Bench) -> None:
    bench.double.refuse("SkuNotAvailable", size="Standard_D2s_v5", times=1)
    error = refused(bench)
    assert (error.meaning, error.provider_code) == (Meaning.NO_CAPACITY, "SkuNotAvailable")
    assert set(bench.double.objects()) == {"dd-one-nic", "dd-one-ip", "dd-one-nsg"}
    bench.swept()
    assert bench.double.objects() == {}


@pytest.mark.parametrize(
    ("name", "market", "other"),
    [
        ("cores", Market.ON_DEMAND, Market.SPOT),
        ("standardDSv5Family", Market.ON_DEMAND, Market.SPOT),
        ("lowPriorityCores", Market.SPOT, Market.ON_DEMAND),
    ],
)
def test_the_accounts_limit(bench: Bench, name: str, market: Market, other: Market) -> None:
    bench.double.limit("eastus", name, 1)
    error = refused(bench, market=market)
    assert (error.meaning, error.provider_code) == (Meaning.QUOTA, "OperationNotAllowed")
    assert name in error.message
    assert bench.made(order(market=other)).market is other


def test_a_refused_quota_by_its_own_code(bench: Bench) -> None:
    bench.double.refuse("QuotaExceeded")
    assert refused(bench).meaning is Meaning.QUOTA


def test_too_many_calls_are_told_with_when_to_come_again(bench: Bench) -> None:
    bench.double.throttle(times=1, after=17)
    with pytest.raises(CloudError) as caught:
        bench.azure.identity()
    assert (caught.value.meaning, caught.value.after) == (Meaning.THROTTLED, 17)
    answer = caught.value.answer()
    assert isinstance(answer, Wait)
    assert answer.after == 17
    assert bench.azure.identity()


@pytest.mark.parametrize(
    ("other", "meant"),
    [
        ({"token": "wrong"}, Meaning.CREDENTIALS),
        ({"subscription_id": "00000000-0000-0000-0000-000000000000"}, Meaning.CREDENTIALS),
        ({"resource_group": "another"}, Meaning.INVALID),
    ],
)
def test_a_wrong_credential(double: AzureDouble, other: dict[str, str], meant: Meaning) -> None:
    azure = Azure(Credential(**double.credential(**other)))
    for call in (azure.identity, lambda: azure.find(USUAL), lambda: azure.sweep("eastus", "", "dd-one", TAGS)):
        with pytest.raises(CloudError) as caught:
            call()
        assert caught.value.meaning is meant
        assert "wrong" not in caught.value.message
    azure.close()


def test_another_authority_is_told_in_plain_words(double: AzureDouble, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    azure = Azure(Credential(**double.credential(ca_bundle=str(other))))
    for call in (azure.identity, lambda: azure.create(USUAL, {"nic": "x"}), lambda: azure.set_tags(_some(), TAGS)):
        with pytest.raises(CloudError, match=r"certificate is not trusted .* Check endpoint and ca_bundle") as caught:
            call()
        assert caught.value.meaning is Meaning.INVALID
    azure.close()


def test_a_missing_file_of_authorities(double: AzureDouble) -> None:
    azure = Azure(Credential(**double.credential(ca_bundle="/nowhere/ca.pem")))
    with pytest.raises(CloudError, match=r"/nowhere/ca\.pem") as caught:
        azure.identity()
    azure.close()
    assert caught.value.meaning is Meaning.INVALID


def test_nobody_there_means_nothing_was_sent(double: AzureDouble) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        azure = Azure(Credential(**double.credential(endpoint=f"https://127.0.0.1:{held.getsockname()[1]}")))
        with pytest.raises(CloudError) as caught:
            azure.terminate(_some())
        azure.close()
    assert caught.value.meaning is Meaning.UNAVAILABLE


def test_a_silent_server_ends_at_the_deadline(double: AzureDouble) -> None:
    with _silent() as port:
        azure = Azure(Credential(**double.credential(endpoint=f"https://127.0.0.1:{port}")), deadline=0.3)
        with pytest.raises(CloudError) as caught:
            azure.terminate(_some())
        azure.close()
    assert caught.value.meaning in (Meaning.AMBIGUOUS, Meaning.UNAVAILABLE)


def test_the_double_takes_no_word_that_azure_does_not_know(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    good = bench.double.ground.things.get(prepared["nic"]).body
    bad = {**good, "properties": {**good["properties"], "enableAcceleratedNetwork": True}}
    with pytest.raises(CloudError, match="enableAcceleratedNetwork: not known") as caught:
        bench.azure._parts.put("nic", "dd-two", bad)
    assert caught.value.meaning is Meaning.INVALID


def test_parts_in_use_wait_for_the_next_sweep(bench: Bench) -> None:
    made = bench.made()
    bench.double.ground.duration = 30
    bench.azure.terminate(made)
    left = bench.azure.sweep("eastus", "1", "dd-one", TAGS)
    assert set(left) == {"dd-one", "dd-one-nic", "dd-one-ip", "dd-one-nsg", "dd-one-disk"}
    state = bench.read(made)
    assert state is not None
    assert state.state is Lifecycle.TERMINATING
    bench.double.ground.duration = 0.05
    bench.double.finish_operations()
    bench.swept()
    assert bench.double.objects() == {}


@pytest.mark.parametrize(
    ("code", "message", "status", "meant"),
    [
        ("OperationNotAllowed", "exceeding approved standardDSv5Family Cores quota", 409, Meaning.QUOTA),
        ("OperationNotAllowed", "The VM is being deallocated", 409, Meaning.CONFLICT),
        ("SomethingNew", "", 409, Meaning.CONFLICT),
        ("SomethingNew", "", 403, Meaning.CREDENTIALS),
        ("SomethingNew", "", 503, Meaning.UNAVAILABLE),
        ("SomethingNew", "", 0, Meaning.OTHER),
        ("RetryableError", "", 429, Meaning.CONFLICT),
        ("RetryableErrorDueToAnotherOperation", "", 429, Meaning.CONFLICT),
        ("OperationNotAllowed", "Too many requests.", 429, Meaning.THROTTLED),
        ("Conflict", "quota of calls", 429, Meaning.THROTTLED),
        ("SubscriptionRequestsThrottled", "", 429, Meaning.THROTTLED),
    ],
)
def test_codes_and_what_they_mean(code: str, message: str, status: int, meant: Meaning) -> None:
    assert meaning(code, message, status) is meant


def test_no_code_means_two_things() -> None:
    codes = [code for known in CODES.values() for code in known]
    assert len(codes) == len(set(codes))


def test_the_code_inside_a_wrapping_error_counts() -> None:
    inner = {"code": "ZonalAllocationFailed", "message": "none left in zone 1"}
    error = arm_error(
        {"code": "DeploymentFailed", "message": "At least one failed.", "details": [inner]}, "make dd-one"
    )
    assert (error.meaning, error.provider_code) == (Meaning.NO_CAPACITY, "ZonalAllocationFailed")
    assert "none left in zone 1" in error.message


def test_underway_is_no_failure(bench: Bench) -> None:
    assert isinstance(bench.azure.prepare(USUAL), Underway)


def _some() -> Instance:
    return Instance(id="x", key="dd-one", state=Lifecycle.RUNNING, location="eastus")


@contextmanager
def _silent() -> Iterator[int]:
    """Takes a connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(server.accept()[0]))
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)
        for one in taken:
            one.close()


def test_a_sweep_needs_only_the_tags_that_say_whose_it_is(bench: Bench) -> None:
    bench.prepared(order(tags={**TAGS, "drydock-blueprint": "old"}))
    bench.swept(tags={**TAGS, "drydock-blueprint": "renamed"})
    assert bench.double.objects() == {}


def test_what_lost_its_tags_is_found_by_its_id_and_told(bench: Bench) -> None:
    known, told = bench.prepared(USUAL), list[str]()
    for thing in bench.double.ground.things:
        thing.body.pop("tags", None)
    assert bench.azure.sweep("eastus", "1", "dd-one", TAGS) == []
    assert len(bench.double.objects()) == 3, "without the ids nothing says that they are ours"
    sweep = lambda: bench.azure.sweep("eastus", "1", "dd-one", TAGS, known=[*known.values()], report=told.append)  # noqa: E731
    until(lambda: not sweep())
    assert bench.double.objects() == {}
    assert {one.split(" ")[0] for one in told} == {"dd-one-nic", "dd-one-ip", "dd-one-nsg"}


def test_computes_own_throttling_is_waited_out_and_rules_nothing_out(bench: Bench) -> None:
    prepared = bench.prepared(USUAL)
    bench.double.throttle_compute(after=1200)
    with pytest.raises(CloudError) as caught:
        bench.azure.create(USUAL, prepared)
    assert (caught.value.meaning, caught.value.after) == (Meaning.THROTTLED, 1200.0)
    answer = caught.value.answer()
    assert isinstance(answer, Wait)
    assert answer.after == 1200.0


def test_what_another_operation_works_on_is_no_throttling(bench: Bench) -> None:
    bench.double.work_on("/networkInterfaces/")
    assert bench.prepared(USUAL)["nic"], "it is asked again"
    bench.double.work_on("/networkSecurityGroups/")
    with pytest.raises(CloudError) as caught:
        bench.azure._parts.put("nsg", "dd-two", {"location": "eastus"})
    assert caught.value.meaning is Meaning.CONFLICT


@pytest.mark.parametrize(
    ("code", "limit", "reach"),
    [
        ("OperationNotAllowed", "standardDSv5Family Cores", Reach.FAMILY),
        ("QuotaExceeded", "Total Regional Cores", Reach.MARKET),
        ("OperationNotAllowed", "LowPriorityCores", Reach.MARKET),
        ("PublicIPCountLimitReached", "", Reach.LOCATION),
    ],
)  # fmt: skip
def test_how_much_a_refused_quota_rules_out(code: str, limit: str, reach: Reach) -> None:
    said = f"Operation could not be completed as it results in exceeding approved {limit} quota."
    error = arm_error({"code": code, "message": said}, "make it", status=409)
    assert (error.meaning, error.reach) == (Meaning.QUOTA, reach)
    answer = error.answer("eastus/standarddsv5family/on_demand")
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.LOCATION
    keys = {
        Reach.FAMILY: "eastus/standarddsv5family/on_demand", Reach.MARKET: "eastus//on_demand",
        Reach.LOCATION: "eastus//",
    }  # fmt: skip
    assert answer.key == keys[reach]
