"""Every operation, tried with what its schema allows and with what it does not, alone and one after another.

`make test` tries a few examples of each; `make test-slow` also every boundary and wrong type that the schema names
(schemathesis calls it coverage). DRYDOCK_SCHEMA_EXAMPLES has more of them tried.
"""

from __future__ import annotations

import os
import resource

import pytest
import schemathesis
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.pytest.lazy import get_all_tests

from drydock.wsgi import application
from leases.engine.core.database import request_finished
from leases.messaging.inline import settle
from leases.operations.callers import caller
from leases.rest import tokens
from leases.rest.models import Token

pytestmark = pytest.mark.timeout(300)
PARTS = 6
"""Each test tries one of so many parts of the operations, and workers share them."""
EXAMPLES = int(os.environ.get("DRYDOCK_SCHEMA_EXAMPLES", "2"))
MOST = {"few": 500, "many": 2500}
"""MiB by which one test may make its process grow."""
FEW = {
    "examples": 1,
    "flows": 6,
    "linked": (r"leases(/\{id\})?$", r"tokens(/\{id\})?$"),
    "coverage": {"enabled": False},
}
MANY = {
    "examples": EXAMPLES,
    "flows": 6 * EXAMPLES,
    "linked": ("(leases|groups|jobs)", "tokens"),
    "coverage": {"unexpected-methods": ["TRACE"]},
}
CREATES = {
    "/api/v1/leases": {"type": "fake"},
    "/api/v1/groups": {"leases": [{"type": "fake"}, {"type": "fake"}]},
    "/api/v1/leases/{id}/jobs": {"command": ["make"]},
    "/api/v1/tokens": {"name": "x", "ttl": "1h"},
}
"""What no schema can say: which types, kinds and users there are."""
CHECKS = {
    # That a name is unknown, no schema says.
    # 413: what is too long by the schema is often longer than any body may be.
    "negative_data_rejection": {
        "expected-statuses": ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
    },
    "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "400", "401", "403", "404", "409"]},
    # test_tokens.py asks every address without a token, and with bad ones, once and not at every example.
    "ignored_auth": {"enabled": False},
}


@schemathesis.serializer("application/x-tar")
def _tar(context, value):
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(params=[pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)])
def how(request):
    """How many examples are tried."""
    return request.param


def measured(examples, **more):
    return settings(
        max_examples=examples, database=None, suppress_health_check=list(HealthCheck),
        derandomize=True, phases=[Phase.explicit, Phase.generate], **more,
    )  # fmt: skip


@pytest.fixture
def headers(chief):
    _, secret = tokens.create(caller(chief), name="schemathesis", scope="operate")
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def load(blueprint, settings, monkeypatch):
    """`load(part=...)`: the schema, and how it is to be tried."""
    blueprint("pool", config={"boot_polls": 0})
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"requests_per_minute": 10_000_000})
    settings.ALLOWED_HOSTS = ["localhost"]
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    # schemathesis writes lengths into patterns, `^[^\x00]{0,4096}$`, and keeps what it compiles: 11 MB for each schema
    # that has one, 5 GB in all. Length and pattern both stand in the schema without it.
    monkeypatch.setattr("schemathesis.specs.openapi.converter.update_pattern_in_schema", lambda schema: None)

    def made(checks=CHECKS, **how):
        config = SchemathesisConfig.from_dict({"checks": checks, **how})
        return schemathesis.openapi.from_wsgi("/api/schema/", application, config=config)

    yield made
    # Its client does not close all responses, as servers do; the thread would go on as one that answers a request.
    request_finished()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_by_itself(load, headers, how, part):
    schema = load(phases={"coverage": how["coverage"]})

    def tried(case):
        case.call_and_validate(headers=headers)

    problems = {}
    before = _peak()
    tests = list(get_all_tests(schema=schema, test_func=tried, settings=measured(how["examples"]), given_kwargs=None))
    for found in tests[part::PARTS]:
        operation, test = found.ok()
        try:
            test()
        except Exception as error:
            problems[operation.label] = error
    assert not problems, "\n\n".join(f"{name}\n{_said(error)}" for name, error in problems.items())
    assert _peak() - before < MOST["few" if how is FEW else "many"]


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _said(error):
    return "\n".join([str(error), *(_said(one) for one in getattr(error, "exceptions", ()))])


@pytest.mark.slow
def test_one_operation_after_another(load, headers, how):
    """What was made is looked at, used and ended in every order that the links of the schema allow."""
    schema = load({**CHECKS, "negative_data_rejection": {"enabled": False}}, generation={"mode": "positive"})
    reached = set()

    class Flow:
        def get_call_kwargs(self, case):
            # Where it has revoked the token that it shows, it goes on all the same.
            Token.objects.filter(digest=tokens.digest(headers["Authorization"].split()[1])).update(revoked_at=None)
            return {"headers": headers}

        def before_call(self, case):
            if case.method.upper() == "POST" and case.path in CREATES:
                case.body = CREATES[case.path]

        def after_call(self, response, case):
            reached.add((case.method.upper(), case.path, response.status_code))
            settle()

    for linked in how["linked"]:  # apart, because the few flows would not reach each of them by chance
        machine = schema.include(path_regex=f"^/api/v1/{linked}").as_state_machine()
        type("Flows", (Flow, machine), {}).run(settings=measured(how["flows"], stateful_step_count=8))
    made = {path for method, path, status in reached if method == "POST" and status in (201, 202)}
    assert {"/api/v1/leases", "/api/v1/tokens"} <= made, reached
    assert [path for _, path, status in reached if "leases/{id}" in path and status == 200], reached
