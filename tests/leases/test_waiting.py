"""Why a lease waits: computed when it is shown, the same on every face, and told to nobody who may not know."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from blueprints.models import RememberedError
from drydock.core import clock
from leases.engine.core import workers
from leases.engine.core.database import run
from leases.messaging.inline import settle
from leases.models import Authorization, Event, Lease, Quota, Resource
from leases.operations import costs, leases
from leases.operations.callers import caller
from leases.reports import waiting_facts


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def bob(django_user_model):
    return django_user_model.objects.create_user("bob")


@pytest.fixture(autouse=True)
def worker():
    workers.seen("elsewhere:1")


@pytest.fixture
def why(owner):
    """Why a lease waits, as its owner or somebody else is told."""

    def tell(lease, who=None):
        return leases.get(who or caller(owner), lease.pk).waiting

    return tell


@pytest.fixture
def full(blueprint, ask):
    """A machine of one slot that a lease holds for an hour."""
    blueprint("rack", config={"capacity": {"slots": 1}}, max_resources=1)
    held = ask(ttl="1h")
    settle()
    run("UPDATE leases_resource SET name = 'rack-a'")
    run("UPDATE leases_lease SET until = clock_timestamp() + interval '42.5 min'")
    return held


def test_the_head_of_the_queue_says_what_is_full_and_when_the_next_lease_ends(full, ask, why):
    waits = ask()
    settle()
    found = why(waits)
    said = f"Waits because rack-a is full (1 of 1 slot in use); the next lease on rack-a ({full.pk}) ends in 42 min."
    assert (found.message, found.reason) == (said, "waiting_room")
    assert (found.holder, found.behind, found.place) == (full.pk, None, 1)
    assert found.help == f"Release another lease of the same owner there: drydock release {full.pk}"
    assert found.ends_at == Lease.objects.get(pk=full.pk).until


def test_a_lease_behind_another_says_behind_whom_and_why_that_one_waits(full, ask, why):
    first, second, third = ask(), ask(), ask()
    settle()
    assert why(second).message == (
        f"Queued behind lease {first.pk}, which waits because rack-a is full (1 of 1 slot in use); the next lease on"
        f" rack-a ({full.pk}) ends in 42 min."
    )
    found = why(third)
    assert found.message.startswith(f"Queued behind lease {first.pk} and 1 other; it waits because rack-a is full")
    assert (found.behind, found.place) == (first.pk, 3)


def test_an_owner_learns_neither_names_nor_numbers_of_another_tenants_leases(full, ask, why, bob, root):
    run("UPDATE leases_lease SET owner_id = %s, name = 'secret-project'", (bob.pk,))
    first, mine = ask(by=bob, name="secret-too"), ask()
    settle()
    told = why(mine)
    assert told.message == (
        "Queued behind an older request, which waits because rack-a is full (1 of 1 slot in use); the next lease on"
        " rack-a ends in 42 min."
    )
    assert (told.behind, told.holder, told.place) == (None, None, 2)
    assert not [word for word in ("bob", "secret", "release") if word in str(told)]
    operators = why(mine, root)
    assert operators.message.startswith(f"Queued behind lease {first.pk} of bob, which waits because rack-a is full")
    assert f"({full.pk} of bob)" in operators.message
    assert (operators.behind, operators.holder) == (first.pk, full.pk)


def test_no_waiting_lease_is_left_without_a_reason(full, ask, owner):
    for _ in range(5):
        ask()
    settle()
    found = [one for one in leases.list_(caller(owner)) if one.state == "pending"]
    assert len(found) == 5
    assert all("rack-a is full" in one.message and one.reason == "waiting_room" for one in found)
    assert not [one.message for one in found if "Asked for" in one.message]
    assert all(one.message == leases.get(caller(owner), one.id).message for one in found)


def test_a_quota_that_was_raised_or_lowered_shows_at_once(blueprint, ask, owner, why):
    blueprint(config={"capacity": {"slots": 1}}, max_resources=1)
    Quota.objects.create(user=owner, max_leases=1)
    ask()
    settle()
    waits = ask()
    settle()
    assert Lease.objects.get(pk=waits.pk).parked
    assert why(waits).message == "ada's quota is 1 lease: 1 held, 1 more requested."
    Quota.objects.update(max_leases=5)
    found = why(waits)
    assert (found.reason, "quota" in found.message) == ("waiting_room", False)
    Quota.objects.update(max_leases=None, max_ram_mib=0)
    run("UPDATE leases_lease SET ram_mib = 4096 WHERE id = %s", (waits.pk,))
    assert "ada's quota is 0 MiB of RAM: 0 MiB held, 4 GiB more requested. This quota can never" in why(waits).message


def test_a_budget_that_was_changed_shows_at_once(blueprint, ask, owner, why, root):
    offers = [{"offer": "big", "price": 2.0, "capacity": {"slots": 1}}]
    blueprint(config={"offers": offers})
    costs.set_budget(root, max_hourly=1.0, user="ada")
    waits = ask()
    settle()
    found = why(waits)
    assert found.reason == "waiting_budget"
    assert "big of pool costs $2.00/h, more than the whole budget; the budget of ada is $1.00/h" in found.message
    assert found.help == "Ask an operator. Raise the budget: drydock budgets set DOLLARS --user ada"
    run("UPDATE leases_budget SET max_hourly = 5")
    assert "budget" not in why(waits).message
    run("UPDATE leases_budget SET max_hourly = 1.5")
    assert "the budget of ada is $1.50/h" in why(waits).message


def test_a_limit_that_was_changed_shows_at_once(full, ask, blueprint, why):
    waits = ask()
    settle()
    assert "is full" in why(waits).message
    run("UPDATE blueprints_blueprint SET max_resources = 2")
    assert why(waits).message.startswith("The next check serves it: rack can build one")
    run("UPDATE blueprints_blueprint SET max_resources = 0")
    run("UPDATE leases_resource SET quarantined = TRUE, note = 'odd noises'")
    assert "the limit of rack is 0 resources" in why(waits).message


def test_the_time_of_past_builds_is_the_estimate_of_the_next_one(blueprint, ask, why):
    blueprint("rack", config={"capacity": {"slots": 1}}, max_resources=2)
    ask(), ask()
    settle()
    waits = ask()
    settle()
    built = Event.objects.filter(resource__isnull=False, from_state="pending", to_state="active").order_by("id")
    assert built.count() == 2
    for event, seconds in zip(built, (30, 50), strict=True):
        run("UPDATE leases_event SET duration = make_interval(secs => %s) WHERE id = %s", (seconds, event.pk))
    assert why(waits).estimate is None, "nothing is built for it at the limit"
    run("UPDATE blueprints_blueprint SET max_resources = 3")
    found = why(waits)
    assert found.estimate == dt.timedelta(seconds=40)
    assert found.message.startswith("The next check serves it: rack can build one (builds take about 40 s)")


@pytest.mark.parametrize("limit", [None, 1])
def test_before_the_first_decision_nobody_is_told_that_it_can_be_built_or_what_would_help(
    blueprint, ask, until, why, limit
):
    blueprint("rack", config={"capacity": {"slots": 1}}, max_resources=limit)
    until(ask(), state="active")
    found = why(ask(slots=7))
    assert not found.help
    assert found.message == "The next check decides: rack may be able to build one."
    assert [one.sentence for one in found.verdicts] == ["rack may be able to build one"]


def test_an_authorization_shows_as_soon_as_it_is_requested_and_granted(full, ask, owner, why):
    blueprint = Resource.objects.get().blueprint
    waits = ask()
    settle()
    run("UPDATE blueprints_blueprint SET audience = 'authorized'")
    found = why(waits)
    assert (found.message, found.help) == (
        "Cannot be served: you may not use rack.", "Request permission: drydock authorizations ask rack",
    )  # fmt: skip
    asked = Authorization.objects.create(blueprint=blueprint, user=owner)
    found = why(waits)
    assert (found.reason, found.help) == (
        "waiting_authorization", f"Ask an operator. Allow the use: drydock authorizations allow {asked.pk}",
    )  # fmt: skip
    Authorization.objects.update(state="authorized")
    assert "rack-a is full" in why(waits).message


def test_a_blueprint_that_is_disabled_or_drained_says_which_of_the_two_and_how_to_change_it(blueprint, ask, why):
    blueprint("lab", enabled=False)
    waits = ask()
    settle()
    found = why(waits)
    assert (found.message, found.help, found.reason) == (
        "Waits because lab is disabled.", "Ask an operator. Enable the blueprint: drydock blueprints enable lab",
        "needs_operator",
    )  # fmt: skip
    run("UPDATE blueprints_blueprint SET enabled = TRUE, drained = TRUE")
    assert (why(waits).message, why(waits).help) == (
        "Waits because lab is drained.", "Ask an operator. Undrain the blueprint: drydock blueprints undrain lab",
    )  # fmt: skip


def test_a_machine_that_a_person_took_out_of_service_is_named_with_the_reason(full, ask, why):
    waits = ask()
    settle()
    run("UPDATE leases_resource SET drained = TRUE, note = 'New disks on Friday.'")
    found, pk = why(waits), Resource.objects.get().pk
    assert "rack-a is drained (New disks on Friday)" in found.message
    assert found.help == f"Ask an operator. Undrain the resource: drydock resources undrain {pk}"


def test_only_requests_for_the_same_blueprints_come_before_a_lease(blueprint, ask, why):
    for name, color in (("one", "red"), ("two", "blue")):
        config = {"capacity": {"slots": 1}, "attributes": {"color": color}}
        blueprint(name, config=config, max_resources=1)
        ask(allowed_blueprints=[name])
    settle()
    others = [ask(requirements={"color": "red"}) for _ in range(3)] + [ask(allowed_blueprints=["one"])]
    settle()
    named, coloured = ask(allowed_blueprints=["two"]), ask(requirements={"color": "blue"})
    settle()
    assert [why(one).place for one in others] == [1, 2, 3, 4]
    assert [why(named).place, why(coloured).place] == [1, 2]
    assert "1 older request comes first" in why(coloured).message
    anywhere = ask()
    settle()
    assert why(anywhere).place == 7


def test_what_would_come_of_a_request_counts_only_those_before_it_too(blueprint, ask, owner):
    for name in ("one", "two"):
        blueprint(name, config={"capacity": {"slots": 1}}, max_resources=1)
        ask(allowed_blueprints=[name])
    settle()
    for _ in range(3):
        ask(allowed_blueprints=["one"])
    settle()
    found = leases.explain(caller(owner), {"type": "fake", "allowed_blueprints": ["two"]})
    assert (found.outcome, found.waiting_before) == ("wait", 0)
    assert found.message.startswith("Waits because two-")
    behind = leases.explain(caller(owner), {"type": "fake", "allowed_blueprints": ["one"]})
    assert behind.waiting_before == 3
    assert behind.message.startswith("Queued behind lease")


def test_a_remembered_failure_is_told_in_the_providers_words_until_it_is_forgotten(blueprint, ask, why):
    offers = [{"offer": "big", "capacity": {"slots": 1}}]
    pool = blueprint(config={"offers": offers})
    until = clock.now() + dt.timedelta(minutes=10, seconds=30)
    RememberedError.objects.create(blueprint=pool, scope="offer", key="big", message="Sold out in zone 3.", until=until)
    waits = ask()
    settle()
    found = why(waits)
    assert "pool failed: Sold out in zone 3, and is tried again in 10 min" in found.message
    assert (found.reason, found.help) == (
        "waiting_offer",
        "Ask an operator. Try again now: drydock blueprints forget pool",
    )
    RememberedError.objects.all().delete()
    assert "can be tried again" in why(waits).message


def test_what_is_missing_is_told_in_the_units_of_people(blueprint, ask, why):
    blueprint("rack", config={"capacity": {"slots": 4, "ram_mib": 8192}}, max_resources=1)
    ask(ram="6GiB")
    settle()
    run("UPDATE leases_resource SET name = 'rack-a'")
    waits = ask(ram="4GiB")
    settle()
    assert "rack-a has at most 2 GiB of RAM free, 4 GiB requested; none of its leases has an end" in why(waits).message


def test_a_lease_that_failed_says_which_attempt_follows_and_what_failed(full, ask, why):
    waits = ask()
    settle()
    run(
        "UPDATE leases_lease SET parked = TRUE, reason = 'waiting_retry', bounces = 1,"
        " message = 'Build failed at boot: No stock left', due_at = clock_timestamp() + interval '90 s' WHERE id = %s",
        (waits.pk,),
    )
    found = why(waits)
    assert found.reason == "waiting_retry"
    assert (
        found.message
        == "Attempt 2 of 6 follows in 1 min. The last attempt failed: Build failed at boot: No stock left."
    )
    assert found.help == f"Try again now: drydock retry {waits.pk}"


def test_members_of_a_group_show_their_siblings(blueprint, ask, owner, why):
    blueprint("rack", config={"capacity": {"slots": 3}}, max_resources=1)
    ask(slots=3)
    settle()
    run("UPDATE leases_resource SET name = 'rack-a'")
    ids = leases.request_group(caller(owner), [{"type": "fake"}] * 3)
    settle()
    found = why(Lease.objects.get(pk=ids[1]))
    assert [(one.lease, one.state) for one in found.siblings] == [(pk, "pending") for pk in ids]
    assert found.message.startswith("The 3 leases in group ")
    assert "there is no room for this lease because rack-a is full (3 of 3 slots in use)" in found.message


def statements(call):
    with CaptureQueriesContext(connection) as sent:
        call()
    return len(sent.captured_queries)


def test_a_list_of_waiting_leases_costs_as_many_statements_as_one_of_few(full, ask, owner):
    ada = caller(owner)
    ask()
    settle()
    few = statements(lambda: leases.list_(ada))
    for n in range(30):
        ask(ttl=f"{n + 1}h")
    assert statements(lambda: leases.list_(ada)) == few
    pending = list(Lease.objects.filter(state="pending"))
    assert statements(lambda: waiting_facts.read(pending)) == 2


def test_a_lease_that_is_being_built_shows_step_percent_attempt_and_the_last_failure(blueprint, ask, owner, until):
    config = {"faults": [
        {"does": "fail", "at": "build.boot", "scope": "step", "message": "The rack is dark"},
        {"does": "slow", "at": "build.boot", "polls": 2, "after": 3600},
    ]}  # fmt: skip
    blueprint(config=config)
    lease, ada = ask(), caller(owner)
    settle()
    failed = leases.get(ada, lease.pk).progress
    assert (failed.phase, failed.step, failed.attempt, failed.failure) == ("build", "boot", 2, "The rack is dark")
    assert failed.attempts > 2
    while leases.get(ada, lease.pk).progress.percent is None:
        settle()
    slow = leases.get(ada, lease.pk).progress
    assert (slow.step, slow.attempt, slow.failure) == ("boot", 1, "")
    assert 0 < slow.percent < 100
    for _ in range(2):
        run("UPDATE leases_run SET due_at = clock_timestamp()")
        settle()
    until(lease, state="active")
    assert leases.get(ada, lease.pk).verdicts == (), "an active lease has nothing more to decide"
    assert Lease.objects.get(pk=lease.pk).verdicts, "though the decision is kept"


def test_a_held_step_shows_the_task_and_for_whom(blueprint, ask, owner):
    blueprint(config={"faults": [{"does": "hold", "at": "build.boot", "who": "the hands", "what": "Plug it in."}]})
    lease = ask()
    settle()
    found = leases.get(caller(owner), lease.pk).progress
    assert (found.step, found.who, found.task) == ("boot", "the hands", "Plug it in.")


def test_a_lease_that_is_tried_again_shows_what_failed_before(blueprint, ask, owner):
    config = {"faults": [
        {"does": "fail", "at": "build.boot", "scope": "zone", "message": "The zone is dark", "remember": 0.01},
        {"does": "hold", "at": "build.boot", "who": "the hands", "what": "Plug it in."},
    ]}  # fmt: skip
    blueprint(config=config)
    lease, ada = ask(), caller(owner)
    for _ in range(40):
        run("UPDATE leases_lease SET due_at = clock_timestamp() WHERE parked")
        settle()
        lease.refresh_from_db()
        if lease.bounces and lease.state == "acquired":
            break
        clock.sleep(0.02)
    for found in (leases.get(ada, lease.pk), leases.list_(ada)[0]):
        assert (found.progress.attempt, found.progress.attempts, found.progress.task) == (2, 6, "Plug it in.")
        assert "The zone is dark" in found.progress.failure


def test_a_machine_that_does_not_answer_is_told_to_be_silent(full, ask, why):
    waits = ask()
    settle()
    run("UPDATE leases_resource SET suspect_since = clock_timestamp()")
    found, pk = why(waits), Resource.objects.get().pk
    assert "rack-a does not answer" in found.message
    assert found.help == f"Ask an operator. See its checks: drydock resources show {pk}"


def test_a_group_that_can_never_be_granted_says_so_at_once_with_verdicts(blueprint, ask, owner, why):
    blueprint("rack", config={"capacity": {"slots": 4}}, max_resources=2)
    ask()
    settle()
    ids = leases.request_group(caller(owner), [{"type": "fake"}] * 20)
    found = why(Lease.objects.get(pk=ids[7]))
    assert found.message.endswith("can never be granted: 20 slots were requested together, but at most 8 can exist.")
    assert found.reason == "needs_operator"
    assert "drydock blueprints change rack --max" in found.help
    assert [(one.blueprint, one.answer) for one in found.verdicts] == [("rack", "no")]
    run("UPDATE blueprints_blueprint SET max_resources = 5")
    assert "never" not in why(Lease.objects.get(pk=ids[7])).message


def test_a_request_beyond_the_whole_quota_says_that_it_can_never_be_granted(blueprint, ask, owner, why):
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1)
    Quota.objects.create(user=owner, max_slots=2)
    waits = ask(slots=3)
    settle()
    assert why(waits).message == (
        "ada's quota is 2 slots: 0 held, 3 more requested. This quota can never allow the request."
    )


def test_an_operator_is_given_the_command_and_an_owner_is_told_to_ask_one(blueprint, ask, owner, why, root):
    blueprint("lab", enabled=False)
    waits = ask()
    settle()
    own, operators = why(waits).help, why(waits, root).help
    assert own == f"Ask an operator. {operators}"
    assert operators == "Enable the blueprint: drydock blueprints enable lab"
