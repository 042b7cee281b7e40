"""Health: degraded resources serve new leases as a last resort, and failed ones are taken out of service."""

from __future__ import annotations

import pytest

from bench import population
from blueprints.answers import Health
from blueprints.fake.cloud import Cloud
from leases.engine.core import specs, workers
from leases.engine.core.database import rows
from leases.engine.core.runs import start
from leases.engine.lifecycle import release
from leases.engine.placement import claims
from leases.engine.placement.constraints import PlacementRequest
from leases.engine.scheduling import request
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Event, Resource, Sync
from leases.operations import attention, infos, leases, resources
from leases.operations.callers import caller
from leases.reports import figures
from leases.validation.requests import read
from tests.leases.test_statements import rows_read

WORN = Health(state="degraded", reason="Fan 2 has failed.")


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def root(django_user_model):
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def ail(cloud):
    """Let the provider report the health of a resource, and check the resource."""

    def report(resource: Resource, health: Health) -> Resource:
        cloud.ail(specs.name_of(resource), health)
        start(resource_id=resource.pk, phase="check")
        settle()
        resource.refresh_from_db()
        return resource

    return report


@pytest.fixture
def pair(blueprint, ail):
    """Two resources with one slot each, of which the first, which a claim would prefer, is degraded."""
    blueprint(config={"provider": "t"}, max_resources=2, min_ready=2)
    settle()
    worn, well = Resource.objects.order_by("id")
    return ail(worn, WORN), well


def test_a_healthy_resource_is_preferred_and_a_degraded_one_is_the_last_resort(pair, ask, until):
    worn, well = pair
    first = until(ask(), state="active")
    assert first.resource_id == well.pk
    second = until(ask(), state="active")
    assert second.resource_id == worn.pk
    assert infos.lease(second).state == "active"


def test_a_resource_is_built_before_a_degraded_one_is_used(blueprint, ail, ask, until):
    pool = blueprint(config={"provider": "t"}, max_resources=2)
    worn = until(ask(), state="active").resource
    release.release(worn.leases.get().pk, actor="ada")
    ail(worn, WORN)
    lease = until(ask(), state="active")
    assert lease.resource_id != worn.pk
    (verdict,) = lease.verdicts
    assert verdict["answer"] == "build"
    assert f"{worn.name} (Fan 2 has failed.) has room and is degraded" in verdict["sentence"]
    assert until(ask(), state="active").resource_id == worn.pk, "the limit is reached"
    assert Resource.objects.filter(blueprint=pool).count() == 2


def test_a_degraded_resource_is_used_before_another_idle_one_is_removed(blueprint, ail, ask, until):
    offers = [{"offer": color, "attributes": {"color": color}} for color in ("red", "blue")]
    blueprint(config={"provider": "t", "offers": offers}, max_resources=2)
    held = [until(ask(requirements={"color": color}), state="active") for color in ("red", "blue")]
    red, blue = (lease.resource for lease in held)
    for lease in held:
        release.release(lease.pk, actor="ada")
    ail(red, WORN)
    assert until(ask(requirements={"color": "red"}), state="active").resource_id == red.pk
    blue.refresh_from_db()
    assert blue.state == "active"


def test_all_faces_show_a_degraded_resource_and_the_change_is_an_event(pair, root, ask):
    worn, _ = pair
    info = infos.resource_info(Resource.objects.get(pk=worn.pk))
    assert (info.health, info.health_reason) == ("degraded", "Fan 2 has failed.")
    assert "Degraded: Fan 2 has failed." in info.problems
    (event,) = Event.objects.filter(kind="resource.health", resource=worn)
    assert event.message == "Health changed from ok to degraded: Fan 2 has failed."
    (item,) = [one for one in attention.needed(root) if one.what == "degraded"]
    assert (item.id, item.message, item.since) == (worn.pk, "Fan 2 has failed.", event.at)
    found = {one.name: one for one in figures.FIGURES}["unhealthy_resources"]
    assert [row[1:] for row in figures.rows(found.sql)] == [("degraded", 1)]


def test_a_recovered_resource_is_claimed_like_any_other(pair, ail, ask, until):
    worn, _ = pair
    ail(worn, Health())
    assert Event.objects.filter(kind="resource.health").count() == 2
    assert until(ask(), state="active").resource_id == worn.pk


def test_the_holder_is_told_that_the_resource_degraded_and_keeps_its_lease(blueprint, ail, ask, until):
    blueprint(config={"provider": "t"}, max_resources=1)
    lease = until(ask(), state="active")
    ail(lease.resource, WORN)
    lease.refresh_from_db()
    assert lease.state == "active"
    assert "Fan 2 has failed." in Event.objects.get(kind="lease.health", lease=lease).message


def test_a_resource_whose_check_reports_failed_health_is_taken_out_like_an_unhealthy_one(
    blueprint, ail, ask, until, settings, root
):  # fmt: skip
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"check_failure_limit": 2})
    pool = blueprint(config={"provider": "t"}, max_resources=0)
    added = resources.register(root, pool.name, {"name": "server"})
    resource = until(Resource.objects.get(pk=added.id), state="active")
    lease = until(ask(), state="active")
    broken = Health(state="failed", reason="DIMM 3 has uncorrectable errors.")
    ail(resource, broken)
    lease.refresh_from_db()
    assert (resource.health, resource.check_failures, lease.state) == ("failed", 1, "active")
    ail(resource, broken)
    lease.refresh_from_db()
    assert resource.quarantined
    assert "DIMM 3" in resource.note
    assert (lease.state, lease.reason) == ("broken", "unhealthy")


def test_a_failed_resource_serves_no_new_leases_while_its_checks_are_counted(blueprint, ail, ask, until, root):
    pool = blueprint(config={"provider": "t"}, max_resources=0)
    added = resources.register(root, pool.name, {"name": "server"})
    resource = until(Resource.objects.get(pk=added.id), state="active")
    ail(resource, Health(state="failed", reason="DIMM 3 has uncorrectable errors."))
    assert not resource.quarantined
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert lease.state == "pending"
    ail(resource, WORN)
    assert until(lease, state="active").resource_id == resource.pk


def test_failed_health_counts_for_a_resource_that_is_switched_off(blueprint, ail, ask, until, settings, root):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"check_failure_limit": 1})
    pool = blueprint(config={"provider": "t"}, max_resources=0)
    added = resources.register(root, pool.name, {"name": "server"})
    resource = until(Resource.objects.get(pk=added.id), state="active")
    Resource.objects.filter(pk=resource.pk).update(power_wanted="off", power="off")
    ail(resource, Health(state="failed", reason="The power supply has failed."))
    assert (resource.quarantined, resource.health) == (True, "failed")


def test_a_build_that_finds_failed_health_fails(blueprint, cloud, ask, until):
    slow = {"does": "slow", "at": "build.create", "polls": 1, "after": 60}
    blueprint(config={"provider": "t", "faults": [slow]}, max_resources=1)
    ask()
    settle()
    resource = Resource.objects.get()
    cloud.ail(specs.name_of(resource), Health(state="failed", reason="The disk is dead."))
    resource.runs.update(due_at="2020-01-01T00:00Z")
    broken = until(resource, state="broken")
    assert "The disk is dead." in broken.message


@pytest.fixture
def look(blueprint):
    """Discover as often as it is called."""
    pool = blueprint(config={"provider": "t"}, max_resources=0)

    def now() -> Resource:
        settle()
        Sync.objects.update(due_at="2020-01-01T00:00Z")
        assert discovery.discover(pool.pk)
        settle()
        return Resource.objects.get()

    return now


def test_a_report_says_the_health_of_a_resource_and_an_unchanged_one_writes_nothing(look, cloud):
    cloud.plant("serial-1")
    look()
    cloud.plant("serial-1", health=WORN)
    assert look().health == "degraded"
    before = rows("SELECT xmin::text FROM leases_resource"), Event.objects.count()
    look()
    assert (rows("SELECT xmin::text FROM leases_resource"), Event.objects.count()) == before
    cloud.plant("serial-1", health=Health())
    assert (look().health, look().health_reason) == ("ok", "")


def test_a_resource_that_a_report_calls_failed_is_quarantined_until_it_says_otherwise(look, cloud, ask, until):
    cloud.plant("serial-1")
    look()
    lease = until(ask(), state="active")
    cloud.plant("serial-1", health=Health(state="failed", reason="The BMC reports a dead PSU."))
    resource = look()
    assert (resource.quarantined, resource.note) == (True, "Failed: The BMC reports a dead PSU.")
    lease.refresh_from_db()
    assert lease.state == "active", "a report ends no lease"
    assert Event.objects.filter(kind="lease.health", lease=lease).exists()
    cloud.plant("serial-1", health=WORN)
    assert (look().quarantined, look().health) == (False, "degraded")


def test_a_new_resource_that_is_reported_as_failed_serves_no_leases(look, cloud, ask):
    cloud.plant("serial-1", health=Health(state="failed", reason="The BMC reports a dead PSU."))
    assert look().quarantined
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert lease.state == "pending"


def test_a_group_uses_degraded_resources_only_if_nothing_else_serves_all(pair, owner, until):
    worn, well = pair
    asked = [read({"type": "fake"}), read({"type": "fake"})]
    _, ids = request.request_group(asked, owner.pk, actor="ada", different="resource")
    held = [until(lease, state="active") for lease in infos.Lease.objects.filter(pk__in=ids)]
    assert {lease.resource_id for lease in held} == {worn.pk, well.pk}


def test_a_group_that_finds_healthy_resources_leaves_the_degraded_one_alone(blueprint, ail, owner, until):
    blueprint(config={"provider": "t"}, max_resources=3, min_ready=3)
    settle()
    worn = ail(Resource.objects.order_by("id").first(), WORN)
    asked = [read({"type": "fake"}), read({"type": "fake"})]
    _, ids = request.request_group(asked, owner.pk, actor="ada", different="resource")
    held = [until(lease, state="active") for lease in infos.Lease.objects.filter(pk__in=ids)]
    assert worn.pk not in {lease.resource_id for lease in held}


def test_a_rehearsal_says_that_only_a_degraded_resource_has_room(pair, ask, until, owner):
    worn, _ = pair
    until(ask(), state="active")
    said = leases.explain(caller(owner), {"type": "fake"})
    assert (said.outcome, said.resource) == ("granted", worn.pk)
    assert "degraded" in said.message


def test_a_degraded_resource_is_not_counted_as_ready(blueprint, ail):
    blueprint(config={"provider": "t"}, max_resources=3, min_ready=1)
    settle()
    ail(Resource.objects.get(), WORN)
    settle()
    assert Resource.objects.filter(health="ok", state="active").count() == 1


def test_a_claim_does_not_read_the_degraded_resources_of_a_fleet(blueprint):
    """No match must cost as little as a hit, also if a fault degrades a whole fleet."""
    pool = blueprint(max_resources=0)
    population.resources(pool.pk, "fake", 5000)
    Resource.objects.update(health="degraded")
    rows("VACUUM ANALYZE leases_resource")
    before = rows_read()
    assert claims.look(PlacementRequest(type="fake")) is None
    assert claims.look(PlacementRequest(type="fake", requirements={"color": "red"})) is None
    assert rows_read() - before < 500
    assert claims.look(PlacementRequest(type="fake", may_be_degraded=True)) is not None


@pytest.mark.parametrize("health", [None, "degraded", "failed"])
def test_parts_that_a_step_removed_are_handed_back_whatever_the_health_of_the_resource(blueprint, cloud, health):
    removed = {"does": "parts_removed", "at": "check.look", "gone": ["card-1"], "health": health}
    pool = blueprint(config={"provider": "t", "faults": [removed]}, max_resources=0)
    cloud.plant("host")
    for part in ("card-1", "card-2"):
        cloud.plant(part, part_of="host")
    settle()
    discovery.discover(pool.pk)
    host = Resource.objects.get(identity="host")
    Sync.objects.update(digest="old")
    cloud.uproot("card-1")
    start(resource_id=host.pk, phase="check")
    settle()
    assert set(Resource.objects.filter(part_of=host, gone_at=None).values_list("identity", flat=True)) == {"card-2"}
    assert Event.objects.filter(resource__identity="card-1", reason="reconfigured").exists()
    assert not Event.objects.filter(kind="resource.lost").exists()
    assert Sync.objects.get().digest != "old", "the place was searched again at once"
    host.refresh_from_db()
    assert host.health == (health or "ok")
