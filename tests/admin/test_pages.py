"""What the pages show, in how many statements, and what they never show."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db.models.functions import Now
from django.urls import reverse

from blueprints.fake.openers import fakes
from blueprints.models import Allowance, Blueprint, Credential, Listing, Reading, RememberedError
from leases.engine.core import installation as engine_installation
from leases.engine.core import specs, workers
from leases.engine.core.transitions import record_event
from leases.messaging.inline import settle
from leases.models import (
    Agent,
    AgentOrder,
    Authorization,
    Budget,
    Capacity,
    Console,
    ConsoleAttachment,
    ConsoleInput,
    ConsoleOutput,
    Debt,
    ErasureRecord,
    Event,
    Failure,
    Finding,
    FormerConfig,
    Installation,
    Job,
    JoinCode,
    Lease,
    LeaseEvidence,
    LeaseGroup,
    LoginAttempt,
    Part,
    ProviderWatch,
    Quota,
    ReportedHardware,
    Resource,
    ResourceCredential,
    ResourceIdentity,
    Run,
    Search,
    SensorReport,
    Share,
    SlotLock,
    Stray,
    Sync,
    Usage,
    Worker,
)
from leases.models.job import KeptOutput, Watch
from leases.operations import installation as installations
from leases.operations import jobs, leases
from leases.operations.callers import caller
from leases.rest.models import Token
from leases.workloads import jobs as mechanism
from tests.admin.conftest import page, rows_of
from tests.admin.test_registered import MODELS

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 770007000|add:77 }}"
SECRET = "hush-hush-do-not-tell"


def text(answer):
    assert answer.status_code == 200
    return answer.content.decode()


def many(lease, count):
    """`count` further rows of every model, beside an active lease."""
    resource, pool = lease.resource, lease.resource.blueprint
    blueprints = [
        Blueprint.objects.create(name=f"b{n}", kind="fake", resource_type="fake", audience="everyone")
        for n in range(count)
    ]
    things = Resource.objects.bulk_create(
        Resource(blueprint=b, type="fake", name=f"r{n}", part_of=resource) for n, b in enumerate(blueprints)
    )
    leases = Lease.objects.bulk_create(
        Lease(type="fake", name=f"l{n}", owner=lease.owner, shape="x", resource=thing, for_lease=lease, root=lease)
        for n, thing in enumerate(things)
    )
    Lease.objects.bulk_create(
        Lease(type="fake", owner=lease.owner, shape="x", state="destroyed", resource=resource) for _ in range(count)
    )
    Share.objects.bulk_create(Share(lease=one, resource=one.resource, slots=1) for one in leases)
    Failure.objects.bulk_create(Failure(resource=thing, act="stop", message="refused") for thing in things)
    Debt.objects.bulk_create(Debt(lease=lease, resource=thing, secrets={"key": SECRET}) for thing in things)
    Run.objects.bulk_create(Run(resource=thing, phase="build", sentence="building") for thing in things)
    Job.objects.bulk_create(Job(lease=lease, command=["make", SECRET], env={"KEY": SECRET}) for _ in leases)
    Lease.objects.filter(pk__in=[one.pk for one in leases]).update(watched=True)
    for one, job in zip(leases, Job.objects.filter(command=["make", SECRET]).order_by("-id"), strict=False):
        asked = {"command": ["make", SECRET], "image": "", "cwd": "", "variables": ["KEY"]}
        Watch.objects.create(lease=one, workload=asked, env={"KEY": SECRET}, job=job, sampled_at=Now(), cpu_seconds=1.5)
        KeptOutput.objects.create(lease=one, job=job, head=SECRET, tail=SECRET, size=20, left_out=0)
    Capacity.objects.bulk_create(Capacity(resource=resource, name=f"c{n}", total=4) for n in range(count))
    Part.objects.bulk_create(Part(resource=resource, part_class="gpu", identity=f"GPU-{n}") for n in range(count))
    SlotLock.objects.bulk_create(SlotLock(key=f"port:{n}", name="port", lease=one) for n, one in enumerate(leases))
    SlotLock.objects.bulk_create(SlotLock(key=f"own:{n}", lease=lease) for n in range(count))
    LeaseGroup.objects.bulk_create(LeaseGroup(owner=lease.owner) for _ in range(count))
    agents = Agent.objects.bulk_create(
        Agent(blueprint=b, place=f"host-{n}", interval=60, drivers=[{"name": "pci", "status": "READY"}])
        for n, b in enumerate(blueprints)
    )
    AgentOrder.objects.bulk_create(
        AgentOrder(agent=one, action="discovery", actor="root", expires_at=Now()) for one in agents
    )
    JoinCode.objects.bulk_create(
        JoinCode(blueprint=b, digest=f"{SECRET}{n}", expires_at=Now(), created_by="root")
        for n, b in enumerate(blueprints)
    )
    LeaseEvidence.objects.bulk_create(
        LeaseEvidence(
            lease=lease, actor="ada", nonce="ab" * 32, provider="tdx_guest", quote=SECRET.encode(), root="ab" * 32,
            passed=True, verdict={"checks": [], "at": "2026-01-01T00:00:00+00:00", "mr_td": "ab" * 48,
                                  "report_data": "", "debug": False},
        )
        for _ in range(count)
    )  # fmt: skip
    ErasureRecord.objects.bulk_create(
        ErasureRecord(
            resource=resource, blueprint=pool.name, kind=pool.kind, lease=lease, owner="ada", disk=f"sd{n}",
            serial=f"S{n}", method="overwrite", started_at=Now(), ended_at=Now(), verified=True, run_id=1,
            phase="clean", step="wipe", requested_by="ada",
        )
        for n in range(count)
    )  # fmt: skip
    SensorReport.objects.bulk_create(
        SensorReport(resource=resource, at=Now(), longest_gap=60, power_watts=n, readings=[["Fan", n, "RPM", "ok"]])
        for n in range(count)
    )
    FormerConfig.objects.bulk_create(
        FormerConfig(blueprint=pool, generation=1000 + n, kind="fake", config={"traits": [str(n)]})
        for n in range(count)
    )
    LoginAttempt.objects.bulk_create(
        LoginAttempt(place=f"10.0.0.{n}:443", slot=0, token=uuid.uuid4(), refused=True) for n in range(count)
    )
    Console.objects.get_or_create(lease=lease, resource=resource)
    printed = ConsoleOutput.objects.count()
    for n in range(count):
        ConsoleAttachment.objects.create(lease=lease, user="ada", until=Now())
        ConsoleInput.objects.create(lease=lease, content=SECRET.encode())
        ConsoleOutput.objects.create(lease=lease, start=printed + n, end=printed + n + 1, content=b"x")
        record_event("lease.note", f"note {n}", lease_id=lease.pk, resource_id=resource.pk, blueprint_id=pool.pk)
        group = Group.objects.create(name=f"g{n}")
        Authorization.objects.create(blueprint=pool, group=group)
        Quota.objects.create(group=group, max_leases=n)
        Budget.objects.create(group=group, max_hourly=n)
        Usage.objects.create(
            lease_id=lease.pk, blueprint_id=pool.pk, blueprint="pool", kind="fake", resource_id=n, type="fake", price=n,
            part=1, started_at=Now(), ended_at=Now(),
        )  # fmt: skip
        RememberedError.objects.create(blueprint=pool, scope="offer", key=f"o{n}", message="no room")
        account = Credential.objects.create(name=f"k{n}", secrets={"key": SECRET})
        Listing.objects.create(credential=account, kind="ec2", location="east", type=f"m{n}", market="spot", price=n)
        Reading.objects.create(credential=account, kind="ec2", what="inventory", place=f"p{n}", message="it throttles")
        Allowance.objects.create(credential=account, kind="ec2", name=f"cpus-{n}", unit="vcpus", limit=8, used=n)
        Worker.objects.create(name=f"w{n}")
        Token.objects.create(user=lease.owner, name=f"t{n}", digest=f"{SECRET}{n}", tail="abcd", expires_at=Now())
        sync = Sync.objects.create(blueprint=blueprints[n], message="it is silent")
        ProviderWatch.objects.create(kind="dpf", credential=f"k{n}", place=f"ns/{n}", message="it is silent")
        ResourceIdentity.objects.create(resource=things[n], namespace="serial:x", value=f"S{n}")
        ResourceCredential.objects.create(resource=things[n], secrets={"password": SECRET})
        Finding.objects.create(resource=things[n], sync=sync)
        ReportedHardware.objects.create(sync=sync, digest=f"{n}", content=SECRET.encode(), size=1)
        Search.objects.create(blueprint=blueprints[n])
        Stray.objects.create(blueprint=pool, key=f"dd-{n}", epoch=1, resource_number=n)
    Installation.objects.get_or_create(id=1)


@pytest.mark.parametrize("count", [3, 50])
def test_no_list_and_no_page_asks_more_when_there_is_more(
    staff, site, lease, count, django_assert_max_num_queries
):  # fmt: skip
    many(lease, count)
    ContentType.objects.get_for_models(*MODELS)
    codenames = [f"view_{model._meta.model_name}" for model in MODELS]
    client = staff(*codenames, *(name.replace("view", "change") for name in codenames))
    for model in MODELS:
        with django_assert_max_num_queries(12):
            assert client.get(rows_of(model)).status_code == 200
    with django_assert_max_num_queries(12):
        assert client.get(reverse("admin:index")).status_code == 200
    rows = [model.objects.first() for model in MODELS if model not in (Lease, Resource)]
    for row in [*rows, lease, lease.resource, Lease.objects.get(name="l1")]:
        with django_assert_max_num_queries(12):
            assert site.get(page(row)).status_code == 200
        with django_assert_max_num_queries(12):
            assert client.get(page(row)).status_code == 200


def test_a_lease_page_says_how_it_came_there(site, lease):
    shown = text(site.get(page(lease)))
    for words in ("Timeline", "acquired", "active", "Share", "Slot locks", "Active runs", "Jobs", "command", "UTC"):
        assert words in shown, words
    states = [event.to_state for event in Event.objects.filter(lease=lease).order_by("id") if event.to_state]
    positions = [shown.index("dd-panel")]
    for state in states:
        positions.append(shown.index(f"</span> {state}</span>", positions[-1]))
    assert positions == sorted(positions)
    assert 'name="_save"' not in shown


def test_a_waiting_lease_says_why_and_where_in_the_queue(site, blueprint, ask):
    blueprint(max_resources=1, config={"capacity": {"slots": 1}})
    ask()
    settle()
    second, third = ask(), ask()
    settle()
    Lease.objects.filter(state="pending").update(due_at="2020-01-01T19:34Z")
    shown, full = text(site.get(page(third))), f"{Resource.objects.get().name} is full (1 of 1 slot in use)"
    assert "Why is it waiting?" in shown
    assert f"Queued behind lease {second.pk} of ada, which waits because {full}" in shown
    assert "Position in the queue: 2." in shown
    assert "19:34" not in shown, "a check that was due in the past is not announced"
    shown = text(site.get(page(second)))
    assert f"Waits because {full}" in shown
    listed = text(site.get(rows_of(Lease) + "?state__exact=pending"))
    assert f"Queued behind lease {second.pk}" in listed
    assert f"Waits because {full}" in listed
    assert leases.get(caller(second.owner), second.pk).message.startswith(f"Waits because {full}")


def test_a_resource_page_says_how_full_and_how_well_it_is(site, blueprint, ask):
    blueprint(config={"capacity": {"slots": 4, "extra": {"licences": 3}}, "parts": [{"part_class": "gpu", "count": 2}]})
    first = ask(extra={"licences": 1}, name="first")
    settle()
    resource = Resource.objects.get()
    RememberedError.objects.create(blueprint=resource.blueprint, scope="zone", key="north", message="is full")
    shown = text(site.get(page(resource)))
    for words in (
        "1 of 4",
        "licences",
        "1 of 3",
        "gpu",
        "Leases over time",
        f"first (#{first.pk})",
        "is full",
        "north",
    ):
        assert words in shown, words


def test_states_are_words_with_icons(site, lease):
    lease.resource.__class__.objects.filter(pk=lease.resource_id).update(quarantined=True, drained=True)
    shown = text(site.get(rows_of(Resource)))
    for icon, word in (("●", "active"), ("⚠", "quarantined"), ("▽", "drained")):
        assert f'<span aria-hidden="true">{icon}</span> {word}' in shown


def test_times_are_relative_with_the_absolute_on_hover(site, lease):
    Lease.objects.filter(pk=lease.pk).update(until=Now() + dt.timedelta(minutes=30, seconds=30))
    lease.refresh_from_db()
    shown = text(site.get(rows_of(Lease)))
    assert f'title="{lease.until:%Y-%m-%d %H:%M:%S} UTC">in 30 min</time>' in shown


def test_leases_are_found_by_label_owner_number_and_resource(site, blueprint, ask):
    blueprint(config={"capacity": {"slots": 9}})
    one, two = ask(labels={"team": "blue"}, name="alpha"), ask(labels={"team": "red"}, name="beta")
    settle()
    for words, found in {"blue": [one], "beta": [two], str(one.pk): None, "ada": [two, one]}.items():
        results = list(site.get(rows_of(Lease), {"q": words}).context["cl"].result_list)
        assert results == found if found else one in results


def test_standard_error_that_is_kept_apart_is_read_by_itself(site, lease):
    job = jobs.start(caller(lease.owner), lease.pk, ["make"], apart=True)
    said = fakes(specs.key("l", lease.pk)).command.jobs
    name = mechanism.host_id(Job.objects.get(pk=job.id))
    said.say(name, b"all is well")
    said.say(name, b"two warnings", "stderr")
    where = reverse("admin:leases_job_output", args=(job.id,))
    out, err = text(site.get(where)), text(site.get(where, {"stream": "stderr"}))
    assert ("all is well" in out, "two warnings" in out) == (True, False)
    assert ("all is well" in err, "two warnings" in err) == (False, True)
    assert f"{where}?stream=stderr" in text(site.get(reverse("admin:leases_job_change", args=(job.id,))))


def test_nothing_that_a_user_gave_becomes_markup(site, lease):
    job = jobs.start(caller(lease.owner), lease.pk, ["make"])
    name = mechanism.host_id(Job.objects.get(pk=job.id))
    fakes(specs.key("l", lease.pk)).command.jobs.say(name, HOSTILE.encode())
    output = text(site.get(reverse("admin:leases_job_output", args=(job.id,))))
    assert "&lt;script&gt;alert(1)" in output
    many(lease, 1)
    Lease.objects.update(
        name=HOSTILE[:255], message=HOSTILE, labels={HOSTILE: HOSTILE}, facts={HOSTILE: [HOSTILE]}, need=HOSTILE[:63],
        requirements={HOSTILE: HOSTILE}, public_keys=[HOSTILE], reason="<b>reason</b>", actor=HOSTILE[:150],
        verdicts=[{"blueprint": HOSTILE, "offer": HOSTILE, "answer": HOSTILE, "sentence": HOSTILE}],
    )  # fmt: skip
    Resource.objects.update(
        name=HOSTILE, message=HOSTILE, note=HOSTILE, facts={HOSTILE: HOSTILE}, attributes={HOSTILE: HOSTILE},
        observed="<b>observed</b>", zone=HOSTILE, offer=HOSTILE, traits=["<b>trait</b>"], identity=None,
    )  # fmt: skip
    Run.objects.update(sentence=HOSTILE, step="<b>step</b>", hold_who=HOSTILE, waits_for="operator")
    Job.objects.update(message=HOSTILE, command=[HOSTILE])
    Part.objects.update(identity=HOSTILE, attributes={HOSTILE: HOSTILE}, part_class="<b>part</b>")
    Capacity.objects.update(name="<b>capacity</b>")
    SlotLock.objects.update(name="<b>lock</b>", value=HOSTILE)
    SlotLock.objects.create(key=HOSTILE, lease=lease, value=HOSTILE)
    Blueprint.objects.update(note=HOSTILE, config={HOSTILE: HOSTILE})
    RememberedError.objects.update(message=HOSTILE, key=HOSTILE, code=HOSTILE)
    Credential.objects.update(note=HOSTILE)
    Authorization.objects.update(note=HOSTILE)
    for model in (Sync, Search, Stray, Debt, ProviderWatch):
        model.objects.update(message=HOSTILE)
    Token.objects.update(name=HOSTILE[:63])
    Group.objects.update(name=HOSTILE)
    record_event(
        "<b>kind</b>", HOSTILE, actor=HOSTILE, lease_id=lease.pk, resource_id=lease.resource_id, details={"a": HOSTILE}
    )
    asks = reverse("admin:leases_lease_act", args=("extend",)) + f"?ids={lease.pk}"
    said = site.post(asks, {"ttl": "3h"}, follow=True)
    spoken = [output, text(said), text(site.get(reverse("admin:search"), {"q": HOSTILE[:20]}))]
    for shown in [*spoken, *everything(site)]:
        for bad in ("<script>alert", "<img src=x", "onerror=alert(2)>{{", "<b>", "770007077"):
            assert bad not in shown, bad


def everything(site):
    """All lists, all pages, all histories, all pages that ask."""
    yield text(site.get(reverse("admin:index")))
    for model in MODELS:
        yield text(site.get(rows_of(model)))
        for row in model.objects.order_by("-pk")[:2]:
            yield text(site.get(page(row)))
            yield text(site.get(page(row).replace("/change/", "/history/")))
            for act in getattr(admin.site._registry[model], "acts", ()):
                at = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_act", args=(act.name,))
                yield text(site.get(at, {"ids": row.pk}))


def test_secrets_are_in_no_page(site, lease):
    many(lease, 2)
    for model in (Lease, Resource):
        for row in model.objects.all():
            row.secrets = {"password": SECRET}
            row.save(update_fields=["secrets"])
    Run.objects.update(memo={"token": SECRET}, asked={"requirements": SECRET}, wanted={"a": SECRET})
    for shown in everything(site):
        assert SECRET not in shown
        assert "gAAAA" not in shown


def test_the_overview_counts_and_says_what_needs_attention(site, lease, blueprint, ask):
    waits = ask(slots=1)
    shown = text(site.get(reverse("admin:index")))
    assert "No worker is alive" in shown
    Worker.objects.create(name="w")
    assert "No worker is alive" not in text(site.get(reverse("admin:index")))
    Resource.objects.update(quarantined=True)
    Lease.objects.update(until=Now() - dt.timedelta(minutes=1))
    Run.objects.create(resource=lease.resource, phase="check", waits_for="operator")
    RememberedError.objects.create(blueprint=lease.resource.blueprint, scope="offer", key="big", message="Sold out.")
    Authorization.objects.create(blueprint=lease.resource.blueprint, user=lease.owner)
    Lease.objects.filter(pk=lease.pk).update(held=True)
    Lease.objects.filter(pk=waits.pk).update(created_at=Now() - dt.timedelta(hours=1))
    overview = site.get(reverse("admin:index")).context["overview"]
    assert {one.of: one.number for one in overview.attention} == {
        "quarantined resource": 1, "step waits for a person": 1, "lease is overdue": 1,
        "lease has been waiting for a long time": 1, "lease is held for debugging": 1, "remembered error": 1,
        "request for authorization": 1,
    }  # fmt: skip
    for one in overview.attention:
        assert list(site.get(one.address).context["cl"].result_list), one.of
    assert {one.of.split("</span> ")[1].removesuffix("</span>"): one.number for one in overview.leases}["active"] == 1
    (pool,) = overview.resources
    assert (pool.blueprint.of, pool.blueprint.number) == ("pool", 1)
    assert [one.number for one in pool.states] == [0, 1, 0, 0]
    assert list(site.get(pool.states[1].address).context["cl"].result_list) == [lease.resource]


def test_the_overview_is_for_those_who_may_look(staff, lease):
    assert staff("view_event").get(reverse("admin:index")).context["overview"] is None


def test_events_outlive_what_they_tell_of_and_are_counted_to_a_limit(site, lease, monkeypatch):
    record_event("lease.note", "of one that was pruned", lease_id=987654, resource_id=987654, blueprint_id=987654)
    assert "of one that was pruned" in text(site.get(rows_of(Event)))
    event = Event.objects.get(lease_id=987654)
    assert "of one that was pruned" in text(site.get(page(event)))
    assert list(site.get(rows_of(Event), {"q": "987654"}).context["cl"].result_list) == [event]
    monkeypatch.setattr("leases.admin.toolkit.base.BoundedPaginator.most", 2)
    # The server may have gathered statistics by itself, or not.
    monkeypatch.setattr("leases.admin.toolkit.base.estimated_rows", lambda table: 0)
    assert site.get(rows_of(Event)).context["cl"].result_count == 2
    monkeypatch.setattr("leases.admin.toolkit.base.estimated_rows", lambda table: 12_345)
    assert site.get(rows_of(Event)).context["cl"].result_count == 12_345


def test_a_lease_for_which_nobody_works_says_so_on_every_face(site, blueprint, ask, owner):
    blueprint(enabled=False)
    waiting = ask()
    settle()
    listed = f"{reverse('admin:leases_lease_changelist')}?attention=no+worker"
    ada = caller(owner)

    def faces():
        return (
            leases.get(ada, waiting.pk).reason == "no_worker",
            leases.list_(ada)[0].reason == "no_worker",
            "No worker is alive" in text(site.get(page(waiting))),
            "no worker: No worker is alive" in text(site.get(listed)),
        )

    Lease.objects.update(since="2020-01-01T00:00Z")
    assert faces() == (False,) * 4
    Installation.objects.update(swept_at="2020-01-01T00:00Z")
    assert faces() == (True,) * 4
    assert "disabled" in leases.get(ada, waiting.pk).message
    workers.seen("elsewhere:1")
    assert faces() == (False,) * 4


def test_every_page_of_a_suspended_installation_says_so(site, lease):
    Worker.objects.create(name="w")
    assert "dd-suspended" not in text(site.get(reverse("admin:index")))
    installations.suspend(caller(lease.owner.__class__.objects.get(is_superuser=True)), "This is a copy.")
    engine_installation.forget()
    for at in (reverse("admin:index"), rows_of(Lease), page(lease), reverse("admin:fleet")):
        shown = text(site.get(at))
        assert 'id="dd-suspended"' in shown, at
        assert "The installation is suspended: This is a copy." in shown
    engine_installation.forget()
