"""What goes wrong at Google, and what we make of it."""

from __future__ import annotations

import socket

import pytest

from blueprints.answers import Failed, Scope, Unknown, Wait
from blueprints.cloud.faults import CloudError, Meaning, Reach
from blueprints.cloud.values import Market, Underway
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from blueprints.gce.errors import REASONS, meaning, of_operation
from tests.clouds.gce.conftest import USUAL, made, order, refused, until
from tests.clouds.gce.double import Double

INSERT = "compute.instances.insert"


def outcome(gce: Gce, wanted: object = USUAL) -> CloudError:
    """The error that a create ends in, whether at once or in its operation."""

    def look() -> CloudError | None:
        try:
            said = gce.create(wanted, {})  # type: ignore[arg-type]
        except CloudError as error:
            return error
        assert isinstance(said, Underway)
        return None

    found: CloudError = until(look)
    return found


def test_an_exhausted_zone_is_told_by_the_operation(double: Double, gce: Gce) -> None:
    double.faults.exhaust("us-central1-a")
    error = outcome(gce)
    assert (error.meaning, error.provider_code) == (Meaning.NO_CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED")
    assert error.zone_wide
    answer = error.answer()
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.ZONE
    assert double.objects() == {}
    made(gce, order(zone="us-central1-b", token="2"))


def test_an_exhausted_type_is_not_the_whole_zone(double: Double, gce: Gce) -> None:
    double.faults.exhaust("us-central1-a", "n2-standard-2", code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")
    error = outcome(gce)
    assert error.meaning is Meaning.NO_CAPACITY
    assert not error.zone_wide
    made(gce, order(type="e2-standard-2", token="2"))


def test_preempted_while_starting_is_no_capacity(double: Double, gce: Gce) -> None:
    text = "Instance failed to start due to preemption."
    double.faults.fail_operation(INSERT, "UNSUPPORTED_OPERATION", text)
    assert outcome(gce, order(market=Market.SPOT)).meaning is Meaning.NO_CAPACITY


def test_an_operation_that_fails_so_is_not_offered(double: Double, gce: Gce) -> None:
    double.faults.fail_operation(INSERT, "UNSUPPORTED_OPERATION", "The instance does not support live migration.")
    error = outcome(gce)
    assert error.meaning is Meaning.NOT_OFFERED
    assert str(error) == "The instance does not support live migration."


def test_quota_of_a_region(double: Double, gce: Gce) -> None:
    double.quotas["us-central1"]["N2_CPUS"] = 3
    made(gce)
    error = refused(Meaning.QUOTA, gce.create, order(key="dd-two", token="2"), {})
    assert error.provider_code == "quotaExceeded"
    assert "N2_CPUS" in str(error)
    made(gce, order(key="dd-two", token="3", zone="us-east1-b", location="us-east1"))


def test_quota_of_gpus_everywhere(double: Double, gce: Gce) -> None:
    double.quotas["us-central1"]["NVIDIA_V100_GPUS"] = 100
    refused(Meaning.NOT_OFFERED, gce.create, order(type="n9-standard-1"), {})
    made(gce, order(type="n1-standard-8+nvidia-tesla-v100:8"))
    error = refused(Meaning.QUOTA, gce.create, order(key="dd-two", token="2", type="g2-standard-4"), {})
    assert "GPUS_ALL_REGIONS" in str(error)


def test_too_many_calls(double: Double, gce: Gce) -> None:
    double.faults.refuse(INSERT, 403, "rateLimitExceeded", "Rate Limit Exceeded", times=2, after=7)
    for _ in range(2):
        error = refused(Meaning.THROTTLED, gce.create, USUAL, {})
        assert error.after == 7.0
        answer = error.answer()
        assert isinstance(answer, Wait)
    made(gce)
    double.faults.refuse("compute.regions.list", 429, "RATE_LIMIT_EXCEEDED")
    refused(Meaning.THROTTLED, gce.locations)


def test_a_type_that_is_not_there_is_not_offered(gce: Gce) -> None:
    error = refused(Meaning.NOT_OFFERED, gce.create, order(type="t2a-standard-4", zone="us-east1-b"), {})
    assert "does not exist in zone" in str(error)


def test_a_wrong_request_is_ours_to_mend(double: Double, gce: Gce) -> None:
    refused(Meaning.INVALID, gce.create, order(type="n2-standard-2", disk_gib=1), {})
    refused(Meaning.NOT_FOUND, gce.create, order(image="projects/debian-cloud/global/images/debian-1"), {})
    double.faults.refuse("compute.projects.get", 403, "forbidden", "Required 'compute.projects.get' permission")
    error = refused(Meaning.CREDENTIALS, gce.identity)
    assert str(error) == "Required 'compute.projects.get' permission"


def test_a_5xx_is_nothing_for_a_read_and_a_riddle_for_a_write(double: Double, gce: Gce) -> None:
    double.faults.refuse("compute.regions.list", 503, "backendError")
    refused(Meaning.UNAVAILABLE, gce.locations)
    double.faults.lose("compute.regions.list")
    refused(Meaning.UNAVAILABLE, gce.locations)
    double.faults.refuse(INSERT, 503, "backendError")
    error = refused(Meaning.AMBIGUOUS, gce.create, USUAL, {})
    assert isinstance(error.answer(), Unknown)
    assert gce.find(USUAL) is None


def test_nobody_there_means_that_nothing_happened(double: Double) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gce = Gce(Credential(**{**double.credential, "endpoint": f"http://127.0.0.1:{port}"}))
    refused(Meaning.UNAVAILABLE, gce.create, USUAL, {})


def test_a_zone_out_of_sight_is_no_absence(double: Double, gce: Gce) -> None:
    it = made(gce)
    double.faults.dark.add("us-central1-a")
    error = refused(Meaning.UNAVAILABLE, gce.instances, "", {"drydock-installation": "i-1"})
    assert "us-central1-a" in str(error)
    refused(Meaning.UNAVAILABLE, gce.instance, it.location, it.zone, it.key, it.id)
    refused(Meaning.UNAVAILABLE, gce.types, "")
    refused(Meaning.UNAVAILABLE, gce.sweep, "us-central1", "", it.key, it.tags)
    double.faults.clear()
    assert [one.id for one in gce.instances("", {"drydock-installation": "i-1"})] == [it.id]


def test_a_forgotten_operation_is_looked_for_by_name(double: Double, gce: Gce) -> None:
    it = made(gce)
    assert gce.created(USUAL, {"operation": "operation-1", "zone": it.zone}) == it
    gce.terminate(it)
    double.settle()
    refused(Meaning.NOT_FOUND, gce.created, USUAL, {"operation": "operation-1", "zone": it.zone})


@pytest.mark.parametrize(
    ("reason", "status", "text", "writes", "expected"),
    [
        ("resourceInUseByAnotherResource", 400, "in use", True, Meaning.CONFLICT),
        ("conditionNotMet", 412, "changed", True, Meaning.CONFLICT),
        ("resourceNotReady", 400, "not ready", True, Meaning.CONFLICT),
        ("insufficientCapacity", 503, "none", True, Meaning.NO_CAPACITY),
        ("stockout", 503, "none", True, Meaning.NO_CAPACITY),
        ("resourcePoolExhausted", 503, "none", True, Meaning.NO_CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", 503, "none", True, Meaning.NO_CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503, "none", True, Meaning.NO_CAPACITY),
        ("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", 403, "many", True, Meaning.THROTTLED),
        ("IAM_PERMISSION_DENIED", 403, "no", False, Meaning.CREDENTIALS),
        ("required", 401, "Login Required", False, Meaning.CREDENTIALS),
        ("required", 400, "Required field", True, Meaning.INVALID),
        ("notFound", 404, "The resource 'x' was not found", False, Meaning.NOT_FOUND),
        ("brandNew", 418, "?", True, Meaning.OTHER),
        ("", 0, "?", True, Meaning.OTHER),
    ],
)
def test_the_table(reason: str, status: int, text: str, writes: bool, expected: Meaning) -> None:
    assert meaning(reason, status, text, writes=writes) is expected


def test_codes_of_operations() -> None:
    assert of_operation("RESOURCE_NOT_READY", "not ready").meaning is Meaning.NO_CAPACITY
    assert of_operation("QUOTA_EXCEEDED", "Quota exceeded", 403).meaning is Meaning.QUOTA
    unknown = of_operation("SOMETHING_NEW", "Something new.")
    assert (unknown.meaning, unknown.provider_code, str(unknown)) == (Meaning.OTHER, "SOMETHING_NEW", "Something new.")
    assert all(reason == reason.lower() for reason in REASONS)


ADDRESS = (
    "Constraint constraints/compute.vmExternalIpAccess violated for project 123. Add instance projects/p/zones/"
    "us-central1-a/instances/dd-one to the constraint to use external IP with it."
)
CUSTOM = "Operation denied by org policy: [customConstraints/custom.onlyN2]: only N2."
PLACE = "Location ZONE:us-central1-a violates constraint constraints/gcp.resourceLocations on the resource projects/p."


@pytest.mark.parametrize("text", [ADDRESS, CUSTOM])
def test_a_policy_of_the_organisation_is_an_operators_at_once(double: Double, gce: Gce, text: str) -> None:
    double.faults.refuse(INSERT, 412, "conditionNotMet", text)
    error = refused(Meaning.POLICY, gce.create, USUAL, {})
    answer = error.answer()
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.OPERATOR
    assert of_operation("CONDITION_NOT_MET", text, 412).meaning is Meaning.POLICY


def test_a_location_that_a_policy_forbids_rules_out_all_its_zones(double: Double, gce: Gce) -> None:
    double.faults.refuse(INSERT, 412, "conditionNotMet", PLACE)
    error = refused(Meaning.NOT_OFFERED, gce.create, USUAL, {})
    answer = error.answer("us-central1/N2_CPUS/on_demand")
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.key) == (Scope.LOCATION, "us-central1//")


@pytest.mark.parametrize(
    ("metric", "reach"),
    [
        ("N2_CPUS", Reach.FAMILY), ("INSTANCES", Reach.LOCATION), ("IN_USE_ADDRESSES", Reach.LOCATION),
        ("PREEMPTIBLE_CPUS", Reach.MARKET), ("CPUS_ALL_REGIONS", Reach.ACCOUNT), ("NVIDIA_T4_GPUS", Reach.FAMILY),
    ],
)  # fmt: skip
def test_how_much_a_refused_quota_rules_out(metric: str, reach: Reach) -> None:
    text = f"Quota '{metric}' exceeded.  Limit: 8.0 in region us-central1."
    assert of_operation("QUOTA_EXCEEDED", text, 403).reach is reach
