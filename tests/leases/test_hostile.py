"""Hostile input through Python: every method of the client, every kind of value that somebody could try.

Each is answered, or refused by an error for people that names no more than it should; what is refused changes nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blueprints.models import Blueprint, Credential
from drydock.core.errors import DrydockError, NotAllowed, NotFound
from drydock_client.values import BlueprintChange, DpuChart, DpuPort, DpuVirtualNetwork
from leases.local import LocalClient
from leases.operations import leases, permissions
from leases.operations.callers import caller
from leases.validation.requests import LeaseRequest

HUGE = "x" * (10 << 20)
DEEP: Any = "bottom"
for _ in range(20_000):
    DEEP = {"a": DEEP}

TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "a\udcffb", "\x1b[31m", "a\nb", "\u202e", "e\u0301", "%s", "{0}", "`id`",
    "$(reboot)", "'; DROP TABLE leases_lease; --", "../../etc/passwd", "/etc/passwd", "-rf", "~root", "🦄" * 300,
    "1" * 5000, HUGE,
)  # fmt: skip
NUMBERS = (-1, 0, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**30, 10**400)
SECONDS = (-1.0, 0.0, float("nan"), float("inf"), 1e300)
MAPPINGS: tuple[Any, ...] = (
    {"a": "\0"}, {"\0": "a"}, {"a": "\ud800"}, {"a": float("nan")}, {"a": 10**400}, {"a": HUGE}, {HUGE: "a"},
    {"a": DEEP}, {"slots": -1}, {"type": "fake", "slots": -1}, {f"k{n}": "v" for n in range(20_000)},
)  # fmt: skip
MOMENTS = (
    dt.datetime(2030, 1, 1), dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC),
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))), dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
)  # fmt: skip
WORDS: tuple[Any, ...] = ("", "\0", "\ud800", [], [""], ["a", "\0"], ["-x"], ["a", HUGE])
_COLUMNS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("order", "max_resources", "min_ready", "max_builds"), NUMBERS),
    **dict.fromkeys(("kind", "audience", "idle_timeout", "note"), TEXTS), "config": MAPPINGS,
    "clear": (["\0"], ["id"]),
}  # fmt: skip
CHANGES = tuple(BlueprintChange(**{column: value}) for column, found in _COLUMNS.items() for value in found)

_CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall", "version": "1.2.0"}
CHART = DpuChart(**_CHART)
CHARTS = tuple(DpuChart(**{**_CHART, part: text}) for part in _CHART for text in TEXTS)
PORTS: tuple[Any, ...] = (
    *([DpuPort(name=text, port=1)] for text in TEXTS), *([DpuPort(name="a", port=number)] for number in NUMBERS),
    *([DpuPort(name="a", port=1, protocol=text)] for text in TEXTS), [DpuPort(name="a", port=1)] * 2,
)  # fmt: skip

SPANS = (*TEXTS, *SECONDS, dt.timedelta.min, dt.timedelta.max, dt.timedelta(0), dt.timedelta(microseconds=-1))
SWITCHES: tuple[Any, ...] = (
    [], [[]], [["p0"]], [["p0", "p0"]], [["p0", "pf0"]] * 2, [["p0", "pf0"]] * 1000, [[f"vf{n}" for n in range(5000)]],
    *([["p0", text]] for text in TEXTS), *([text] for text in TEXTS),
)  # fmt: skip
_NETWORK = {"name": "blue", "subnet": "10.30.1.0/24", "interfaces": ("pf0",)}
NETWORK = DpuVirtualNetwork(**_NETWORK)
VIRTUAL: tuple[Any, ...] = (
    [],
    [NETWORK] * 2,
    [NETWORK] * 1000,
    *MAPPINGS,
    *([one] for one in (*MAPPINGS, *TEXTS, *NUMBERS)),
    *([DpuVirtualNetwork(**{**_NETWORK, part: text})] for part in ("name", "subnet") for text in (*TEXTS, *NUMBERS)),
    *([DpuVirtualNetwork(**{**_NETWORK, "interfaces": (text,)})] for text in TEXTS),
    [DpuVirtualNetwork(**{**_NETWORK, "interfaces": ("pf0",) * 5000})],
    [DpuVirtualNetwork(**{**_NETWORK, "interfaces": DEEP, "dhcp": 1 << 63})],
)

VALUES: dict[str, tuple[Any, ...]] = {
    "str": TEXTS, "int": NUMBERS, "float": SECONDS, "Mapping[str, Any]": MAPPINGS, "Mapping[str, str]": MAPPINGS,
    "Mapping[str, QuotaLimit]": tuple({"max_slots": number} for number in NUMBERS) + MAPPINGS
    + tuple({"max_ttl": span} for span in (*SECONDS, *TEXTS)), "dt.datetime": MOMENTS,
    "Words": WORDS, "Request": MAPPINGS, "Wanted": MAPPINGS, "Sequence[Request]": tuple([one] for one in MAPPINGS),
    "BlueprintChange": CHANGES, "Stream": TEXTS, "Collection[str]": tuple([text] for text in TEXTS),
    "Sequence[str]": tuple([text] for text in TEXTS), "DpuChart": CHARTS, "Sequence[DpuPort]": PORTS,
    "str | float | dt.timedelta": SPANS, "Sequence[Sequence[str]]": SWITCHES,
    "Sequence[DpuVirtualNetwork]": VIRTUAL,
}  # fmt: skip
"""Annotation -> what is tried for it; `| None` is left out."""
SPARED = {"bool", "bytes", "Path", "Callable[[], bool]", "Callable[[str, bytes], None]", "Callable[[str], None]"}
SPARED |= {"Callable[[values.JobInfo], None]"}

NO_SESSION = "00000000-0000-0000-0000-000000000000"
SOUND: dict[str, dict[str, Any]] = {
    "request": {"request": {"type": "fake"}}, "request_group": {"requests": [{"type": "fake"}]},
    "explain": {"request": {"type": "fake"}}, "explain_group": {"requests": [{"type": "fake"}]},
    "extend": {"ttl": "1h"}, "hold": {"ttl": "1h"}, "run": {"words": ["true"]},
    "start_job": {"words": ["true"]}, "read_file": {"path": "a"}, "write_file": {"path": "a", "content": b"a"},
    "list_files": {}, "remove_path": {"path": "b"},
    "publish": {"path": "a", "content": b"a"}, "unpublish": {"path": "b"},
    "change_resource": {"act": "undrain"}, "register": {"blueprint": "pool", "registration": {"name": "own"}},
    "change_registration": {"changed": {"name": "own"}}, "host_keys": {"blueprint": "pool", "address": "127.0.0.1"},
    "blueprint": {"name": "pool"}, "switch_blueprint": {"name": "pool", "act": "enable"}, "kind": {"name": "fake"},
    "add_blueprint": {"name": "other", "kind": "fake", "config": {}, "change": BlueprintChange()},
    "change_blueprint": {"name": "pool", "change": BlueprintChange()}, "remove_blueprint": {"name": "nothing"},
    "named": {"name": "one"}, "resolve": {"resource": 1}, "ask_authorization": {"blueprint": "pool"},
    "set_quota": {"user": "eve", "limits": {"max_slots": 5}},
    "decide_authorization": {"blueprint": "pool", "allow": True, "user": "eve"},
    "settle_authorization": {"allow": True}, "change_authorization": {"act": "approve"},
    "change_server": {"act": "start"}, "change_lease_machine": {"act": "stop"},
    "change_resource_machine": {"act": "stop"},
    "set_budget": {"user": "eve", "max_hourly": 5.0}, "remove_budget": {"user": "eve"}, "usage": {"wanted": {}},
    "usage_records": {"wanted": {}},
    "user": {"user": "eve"}, "add_user": {"user": "adam"}, "set_user_password": {"user": "eve"},
    "switch_user": {"user": "eve", "act": "enable"}, "change_user_groups": {"user": "eve", "add": ["lab"]},
    "remove_quota": {"user": "eve"}, "credential": {"name": "cloud"}, "remove_credential": {"name": "nothing"},
    "add_credential": {"name": "other", "secrets": {"key": "hush-hush"}},
    "change_credential": {"name": "cloud", "secrets": {"key": "hush-hush"}}, "read_credential": {"name": "cloud"},
    "offers": {"wanted": {}}, "instance_types": {"wanted": {}}, "create_instance": {"wanted": {}},
    "wait_until_ended": {"timeout": 0.0}, "change_instance": {"act": "stop"}, "change_machine": {"act": "stop"},
    "settle_orphan": {"act": "destroy"}, "detach_console": {"session": NO_SESSION},
    "write_console": {"session": NO_SESSION, "sequence": 1, "content": b"a"},
    "apply_dpu_service": {"name": "a", "chart": CHART}, "dpu_service": {"name": "b"},
    "remove_dpu_service": {"name": "b"}, "request_dpu_credential": {"name": "a", "ttl": "10m"},
    "read_dpu_credential": {"name": "b"}, "remove_dpu_credential": {"name": "b"},
    "connect_dpu_chain": {"name": "a", "switches": [["p0", "pf0"]]}, "dpu_chain": {"name": "b"},
    "remove_dpu_chain": {"name": "b"}, "create_dpu_network": {"name": "a", "subnet": "10.20.1.0/24"},
    "dpu_network": {"name": "b"}, "remove_dpu_network": {"name": "b"},
    "create_dpu_volume": {"name": "a", "policy": "fast", "size_gib": 1}, "dpu_volume": {"name": "b"},
    "remove_dpu_volume": {"name": "b"}, "create_dpu_vpc": {"name": "a", "isolation": "ovn", "networks": [NETWORK]},
    "dpu_vpc": {"name": "b"}, "remove_dpu_vpc": {"name": "b"},
}  # fmt: skip
"""Method -> arguments with which it works, beside `id`."""
MADE_UP: dict[str, Any] = {"str": "a", "bool": True, "int": 1, "float": 1.0, "bytes": b"a", "Mapping[str, Any]": {}}
"""Annotation -> what a method that is not in SOUND is given where it has no default."""
_OF_DPUS = (
    "dpu_services", "dpu_service", "apply_dpu_service", "remove_dpu_service", "dpu_credentials",
    "request_dpu_credential", "read_dpu_credential", "remove_dpu_credential", "dpu_chains", "dpu_chain",
    "connect_dpu_chain", "remove_dpu_chain", "dpu_networks", "dpu_network", "create_dpu_network", "remove_dpu_network",
    "dpu_volumes", "dpu_volume", "create_dpu_volume", "remove_dpu_volume", "dpu_vpcs", "dpu_vpc", "create_dpu_vpc",
    "remove_dpu_vpc",
)  # fmt: skip
LEASES = {
    "extend": {"ttl": "10m"}, "heartbeat": {"heartbeat_limit": "10m"},
    **{name: {"type": "fake_activated"} for name in _OF_DPUS},
}  # fmt: skip
"""Method -> what its lease is asked for with."""
NOTHING_THERE = {
    "named",
    "dpu_service",
    "read_dpu_credential",
    "dpu_chain",
    "dpu_network",
    "dpu_volume",
    "dpu_vpc",
    "remove_blueprint",
    "remove_budget",
    "remove_credential",
    "remove_path",
    "read_file",
    "resolve",
    "resolve_lease",
    "resolve_resource",
}
NOT_SUCH = {
    "access", "change_registration", "host_keys", "machine", "change_machine", "console", "create_instance", "instance",
    "end_instance", "change_instance", "settle_orphan", "wait_until_ended", "group", "lease_machine",
    "agent", "revoke_agent", "order_agent", "create_join_code", "confirm_agent", "install_agent", "uninstall_agent",
    "start_act", "cancel_act", "hardware_report", "scan_hardware", "attest",
    "resource_machine", "change_lease_machine", "change_resource_machine", "lease_console", "resource_console",
    "write_console",
}  # fmt: skip
"""Not to be done with what is there: a lease on a part of something fake, that has not ended."""
OTHERWISE = {
    "attended",
    "carry_out",
    "close",
    "follow",
    "upload",
    "download",
    "publish_tree",
    "sweep",
    "attention",
    "credentials",
    "quotas",
    "budgets",
    "locations",
    "users",
}
METHODS = [
    name for name, member in inspect.getmembers(LocalClient, inspect.isfunction)
    if not name.startswith("_") and name not in OTHERWISE and not inspect.iscoroutinefunction(member)
]  # fmt: skip


def shown(value: Any) -> str:
    try:
        return ascii(value)[:80]
    except RecursionError:
        return "nested"


def counts() -> dict[str, int]:
    """Rows of every table of ours."""
    tables = [name for name in connection.introspection.table_names() if name.split("_")[0] in ("leases", "blueprints")]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in tables))
        return dict(cursor.fetchall())


def fit_for_people(error: DrydockError) -> None:
    """It says something, no longer than a page, and can be printed anywhere."""
    said = str(error)
    assert 3 < len(said) < 2500, said[:300]
    assert not any((ord(c) < 32 and c not in "\n\t") or 0xD800 <= ord(c) <= 0xDFFF for c in said), ascii(said)[:300]


def refused_or_done(call: Callable[[], Any]) -> bool:
    """Whether it was done; when it was refused, nothing has changed."""
    before = counts()
    refused = None
    try:
        call()
    except DrydockError as error:
        refused = error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}") from error
    if refused is not None:
        fit_for_people(refused)
        assert counts() == before, f"refused with {refused}, and changed something"
    return refused is None


def made_up(method: Any) -> dict[str, Any]:
    """Arguments for all parameters without a default, except `id`."""
    needed = [one for one in inspect.signature(method).parameters.values() if one.default is one.empty]
    named = [one for one in needed if one.kind is not one.VAR_KEYWORD and one.name != "id"]
    return {one.name: MADE_UP[str(one.annotation)] for one in named}


def attempts(method: Any, sound: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Argument, value, and the call with it; all other arguments are sound."""
    for parameter in inspect.signature(method).parameters.values():
        annotation = str(parameter.annotation)
        annotation = annotation if annotation in VALUES else annotation.removesuffix(" | None")
        if annotation not in SPARED and parameter.kind is not parameter.VAR_KEYWORD:
            for value in VALUES[annotation]:
                yield parameter.name, value, partial(method, **{**sound, parameter.name: value})


@pytest.mark.parametrize("part", range(4))
@pytest.mark.slow
def test_no_value_of_any_argument_gets_further_than_an_error_for_people(part, known):
    client, of = known
    failures = []
    for name in METHODS[part::4]:
        method = getattr(client, name)
        unknown = name in NOT_SUCH or (name not in SOUND and made_up(method))
        known_refusals = (DrydockError,) if unknown else (NotFound,) if name in NOTHING_THERE else ()
        with contextlib.suppress(*known_refusals):
            method(**of(name))
        for argument, value, call in attempts(method, of(name)):
            try:
                refused_or_done(call)
            except AssertionError as error:
                failures.append(f"{name}({argument}={shown(value)}): {error}")
        for readable in (client.leases, client.events, client.blueprints, client.resources, client.credentials):
            readable()
    assert not failures, "\n".join(failures)


@pytest.fixture
def known(blueprint, ask, until):
    """A client, and what gives a method arguments with which it works."""
    root = User.objects.create_superuser("root")
    blueprint(config={"capacity": {"slots": 1000}})
    first = until(ask(), state="active")
    User.objects.create_user("eve")
    Credential.objects.create(name="cloud", secrets={"key": "hush-hush"})
    shop = {"provider": "cloud", "credential": "cloud"}
    blueprint("shop", kind="fake_cloud", config=shop, resource_type="fake_cloud", enabled=False)
    charts = [{"repository": CHART.repository, "name": CHART.name, "versions": [CHART.version]}]
    blueprint(
        "dpus",
        kind="fake_activated",
        config={
            "provider": "dpus",
            "charts": charts,
            "chains": {},
            "networks": ["10.20.0.0/16"],
            "volumes": {"policies": ["fast"]},
            "vpcs": {"isolations": ["ovn"], "subnets": ["10.30.0.0/16"]},
        },
    )
    client = LocalClient(caller(root))
    ids = dict.fromkeys(("job", "job_output", "cancel_job"), client.start_job(first.pk, ["true"]).id)
    ids |= dict.fromkeys(
        ("authorization", "settle_authorization", "change_authorization"), permissions.ask(caller("eve"), "pool").id
    )
    of_resource = ("resource", "acts", "change_resource", "change_registration", "sensors", "set_resource_credential")
    ids |= dict.fromkeys(of_resource, first.resource_id)
    client.set_quota(user="eve", limits={"max_leases": 3})
    client.set_budget(user="eve", max_hourly=3.0)

    def of(name: str) -> dict[str, Any]:
        method = getattr(client, name)
        arguments = SOUND[name] if name in SOUND else made_up(method)
        if "id" not in inspect.signature(method).parameters:
            return arguments
        return {"id": ids.get(name) or active(**LEASES.get(name, {})), **arguments}

    def active(**asked: Any) -> int:
        lease = until(ask(by=root, **asked), state="active")
        lease.secrets = {"private_key": "hush-hush"}
        lease.save(update_fields=["secrets"])
        return int(lease.pk)

    return client, of


def test_what_is_anothers_is_as_if_it_were_not_there_whatever_the_method(known):
    """A stranger with every id: nothing is read, nothing is changed, nothing tells an id that is taken from others."""
    client, of = known
    stranger = LocalClient(caller(User.objects.create_user("mallory")))
    before = counts()
    for name in METHODS:
        if "id" in inspect.signature(getattr(client, name)).parameters:
            arguments = of(name)
            told = [_refusal(stranger, name, {**arguments, "id": pk}) for pk in (arguments["id"], 987_654_321)]
            assert told[0].replace(str(arguments["id"]), "N") == told[1].replace("987654321", "N"), name
            before = counts()
    first = of("job")["id"]
    assert not [
        *stranger.leases(),
        *stranger.jobs(),
        *stranger.events(),
        *stranger.resources(),
        *stranger.authorizations(),
    ]
    lease = client.leases()[-1]
    for found in (
        stranger.leases(states=["active"], resource=lease.resource), stranger.leases(name=lease.name, type="fake"),
        stranger.jobs(lease=lease.id), stranger.events(lease=lease.id), stranger.events(resource=lease.resource),
    ):  # fmt: skip
        assert found == []
    assert client.job(first).lease
    assert counts() == before


def _refusal(stranger: LocalClient, name: str, arguments: dict[str, Any]) -> str:
    """What the stranger is told."""
    before = counts()
    with pytest.raises((NotFound, NotAllowed)) as refused:
        getattr(stranger, name)(**arguments)
    assert counts() == before, name
    return str(refused.value)


# By index: Hypothesis keeps the text of a strategy, and with it every value, for the rest of the process.
_TEXT = st.text(st.characters(), max_size=6) | st.integers(0, len(TEXTS) - 1).map(lambda index: TEXTS[index])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
REQUESTS = st.dictionaries(st.sampled_from([*LeaseRequest.model_fields, "vcpus", "ram", "disk", "no_field"]), ANYTHING)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=REQUESTS, requirements=st.dictionaries(st.sampled_from(["color", "wings", "\0"]), ANYTHING))
def test_whatever_is_asked_is_understood_or_refused(blueprint, owner, asked, requirements):
    if not Blueprint.objects.exists():
        blueprint()
    who, whole = caller(owner), {"type": "fake", "requirements": requirements, **asked}
    refused_or_done(lambda: leases.explain(who, whole))
    refused_or_done(lambda: leases.request_group(who, [{"type": "nothing"}, whole]))
