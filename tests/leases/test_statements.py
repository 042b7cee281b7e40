"""How many statements the way of a warm lease costs: few, and as many with a long history as without."""

from __future__ import annotations

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from bench import population
from leases.engine.core import database as engine_transaction
from leases.engine.core.database import rows
from leases.engine.lifecycle import release
from leases.engine.scheduling import allocate, request
from leases.engine.scheduling.place import Outcome
from leases.messaging.inline import settle
from leases.models import Lease, Quota, Resource
from leases.validation.requests import read

WHERE = ("host", "port", "user", "password", "dbname")
AT_MOST = 14
TRANSACTIONS = 4
"""BEGIN and COMMIT of asking and of releasing, which go to the server too."""


@pytest.fixture
def cycle(owner):
    """One warm cycle; the statements it took."""

    def run() -> int:
        with CaptureQueriesContext(connection) as sent:
            lease = request.request(read({"type": "fake"}), owner.pk, actor="ada")
            assert Lease.objects.get(pk=lease.id).state == "active"
            release.release(lease.id, actor="ada")
        ours = [q for q in sent.captured_queries if q["sql"] not in ("BEGIN", "COMMIT")]
        assert len(sent.captured_queries) - len(ours) in (0, TRANSACTIONS)
        return len(ours) - 1 + TRANSACTIONS

    return run


def test_a_warm_cycle_costs_few_statements_and_always_as_many(blueprint, owner, cycle):
    blueprint(config={"capacity": {"slots": 8}}, max_resources=3, min_ready=3)
    settle()
    assert Resource.objects.filter(state="active").count() == 3
    first = cycle()
    assert first <= AT_MOST
    assert [cycle() for _ in range(20)] == [first] * 20
    for _ in range(15):
        request.request(read({"type": "fake"}), owner.pk, actor="ada")
    assert cycle() == first, "what others hold costs nothing"
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed", "active"}


def test_quotas_cost_one_statement_and_only_where_there_are_any(blueprint, owner, cycle, django_user_model):
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()
    without = cycle()
    Quota.objects.create(user=django_user_model.objects.create_user("bob"), max_leases=1)
    assert cycle() == without + 1


def rows_read(table: str = "leases_resource") -> int:
    """So many rows of a table this database has read since it was made."""
    rows("SELECT pg_stat_force_next_flush()")
    return rows("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = %s", (table,))[0][0]


@pytest.mark.parametrize("parked", [False, True])
def test_beside_many_waiters_a_lease_reads_neither_them_nor_those_that_have_ended(blueprint, owner, cycle, parked):
    """The planner thinks that it meets one that waits at once, wherever it begins."""
    many = 5000
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()
    population.history(owner.pk, "fake", many)
    population.waiters(owner.pk, "fake", many, shapes=1, slots=1000)
    if parked:
        rows("UPDATE leases_lease SET parked = TRUE, reason = 'waiting_quota' WHERE state = 'pending' RETURNING id")
        rows("VACUUM ANALYZE leases_lease")
    cycle()
    before = rows_read("leases_lease")
    cycle()
    assert rows_read("leases_lease") - before < 1000


def test_a_lease_that_names_its_blueprint_does_not_read_what_others_have(blueprint, ask):
    """Of a type that has many: what it could take, what it could build, and what is on its way out."""
    many = 5000
    population.resources(blueprint("others").pk, "fake", many)
    blueprint("named", max_resources=3)
    before = rows_read()
    lease = ask(allowed_blueprints=["named"], exclusive=True)
    assert allocate.decide(lease.pk) is Outcome.GRANTED
    assert rows_read() - before < many
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.resource.blueprint.name) == ("active", "named")


def test_a_whole_host_is_found_without_reading_those_with_leased_devices(blueprint, ask):
    """Beside many devices too: the planner expects as many resources of each type."""
    many = 2500
    wholes, pieces = blueprint("wholes", kind="fake").pk, blueprint("pieces", kind="fake_activated").pk
    population.resources(pieces, "fake_activated", many)
    population.trees(wholes, pieces, "fake", "fake_activated", many, parts=1)
    population.occupy(wholes)
    for _ in range(4):
        release.release(ask(exclusive=True).pk, actor="ada")
    before = rows_read()
    lease = ask(exclusive=True)
    assert lease.resource.name == f"host-{many}"
    assert rows_read() - before < 1000


def test_reading_what_is_below_a_host_does_not_read_all_resources(blueprint):
    """The planner expects the recursion to find far more than the parts of a host, and these to be scattered."""
    wholes, pieces = blueprint("wholes", kind="fake").pk, blueprint("pieces", kind="fake_activated").pk
    for _ in range(2):
        population.trees(wholes, pieces, "fake", "fake_activated", 400, parts=9)
    host = Resource.objects.filter(type="fake").latest("id").pk
    rows("SELECT FROM drydock_below(%s)", (host,))
    before = rows_read()
    assert len(rows("SELECT FROM drydock_below(%s)", (host,))) == 9
    assert rows_read() - before < 500


@pytest.fixture
def another():
    """Another process's connection to the same database: ours does not see what it does."""
    wanted = ("host", "port", "user", "password", "dbname")
    with psycopg.connect(
        **{k: v for k, v in connection.get_connection_params().items() if k in wanted}, autocommit=True
    ) as db:
        yield db


@pytest.mark.parametrize("column", ["blueprints_blueprint.name", "leases_resource.name", "leases_lease.shape"])
def test_prepared_statements_outlive_a_migration_that_makes_their_plans_useless(blueprint, ask, another, column):
    """Each column is given by a statement of another place: before, in and after the transaction."""
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()
    for _ in range(4):
        release.release(ask().pk, actor="ada")
    there = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s"
    assert [rows(there, (f"%{text}%",))[0][0] for text in ("b.kind, r.name", "INTO leases_lease")] == [1, 1]
    table, name = column.split(".")
    before = another.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s",
        (table, name),
    ).fetchone()[0]
    alter = f"ALTER TABLE {table} ALTER COLUMN {name} TYPE "
    another.execute(alter + "varchar(999)")
    try:
        lease = ask()
        assert lease.state == "active"
        release.release(lease.pk, actor="ada")
        assert Lease.objects.get(pk=lease.pk).state == "destroyed"
    finally:
        another.execute(alter + before)


def test_a_connection_that_is_cut_is_a_database_error_like_any_other():
    ((backend,),) = rows("SELECT pg_backend_pid()", hot=True)
    with psycopg.connect(**{k: v for k, v in connection.get_connection_params().items() if k in WHERE}) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (backend,))
    engine_transaction._local.plans_until = 0.0
    with pytest.raises(OperationalError):
        rows("SELECT 1", hot=True)
    connection.close()
