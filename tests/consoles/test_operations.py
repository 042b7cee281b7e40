"""A console over the rows of the database: readers, one writer, take-over, the record, and how it ends."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.utils import timezone

from blueprints.fake import openers
from blueprints.fake.kind import Fake
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotAllowed, NotFound, NotSupported
from interfaces.console.fake import FakeConsole
from interfaces.errors import ConnectionLost, LeaseEnded
from leases import consoles
from leases.consoles import attachments, pump, record
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.upkeep import pruning
from leases.models import Console, ConsoleAttachment, ConsoleInput, ConsoleOutput, Event, Lease
from leases.operations.callers import caller

pytestmark = pytest.mark.timeout(240, func_only=True)
SECRET = "correct-horse-battery"


@pytest.fixture
def lease(blueprint: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., Any]) -> Lease:
    """A lease on the whole of a machine with a secret."""
    blueprint(config={"capacity": {"slots": 2}})
    found = until(ask(exclusive=True), state="active")
    Lease.objects.filter(pk=found.pk).update(secrets={"username": "administrator", "password": SECRET})
    found.refresh_from_db()
    return found


def machine(lease: Lease) -> FakeConsole:
    """The machine's side of the console."""
    return openers.fakes(specs.key("l", lease.pk)).console


def closed(one: FakeConsole) -> None:
    """Wait until every line was closed."""
    end = time.monotonic() + 20
    while one.closed < one.opened:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_readers_and_one_writer_see_the_same(lease, attach, operator):
    writer, reader = attach(lease), attach(lease, operator, read_only=True)
    other = attach(lease, operator)
    assert [one.last.writing for one in (writer, reader, other)] == [True, False, False]
    assert (other.last.writer, other.last.attached) == ("ada", 3)
    writer.until(state="open")
    writer.type(bytes(range(256)))
    writer.until(bytes(range(256)))
    machine(lease).print(b"login: ")
    for one in (writer, reader, other):
        assert one.until(b"login: ").startswith(bytes(range(256)))
    assert machine(lease).opened == 1
    for one in (reader, other):
        with pytest.raises(Conflict, match="ada types at this console now"):
            one.type(b"x")
    for one in (writer, reader, other):
        one.leave()
    closed(machine(lease))
    assert machine(lease).typed == bytes(range(256))
    said = list(Event.objects.filter(kind__startswith="console.").order_by("id").values_list("actor", "message"))
    assert said == [
        ("ada", "Attached to the console, and types there."), ("root", "Attached to the console, and only reads."),
        ("root", "Attached to the console, and only reads."),
    ]  # fmt: skip


def test_taking_over_is_told_to_the_other_at_once(lease, attach, operator):
    first = attach(lease)
    first.until(state="open")
    first.look(wait=0)
    second = attach(lease, operator, take=True)
    assert (second.last.writing, second.last.writer) == (True, "root")
    begun = time.monotonic()
    now = first.look(wait=30)
    assert (now.writing, now.writer) == (False, "root")
    assert time.monotonic() - begun < 20, "it did not wait for output"
    with pytest.raises(Conflict, match=r"root types at this console now.*--take"):
        first.type(b"rm")
    second.type(b"ls")
    first.until(b"ls")
    assert Event.objects.get(kind="console.taken").message == "Took the console over from ada."
    second.leave()
    assert first.look(wait=30).writer == ""
    again = consoles.attach(first.who, lease.pk, session=first.session)
    assert (again.session, again.writing, again.attached) == (first.session, True, 1)
    assert Event.objects.filter(kind="console.attached").count() == 2, "no new attachment"


def test_an_input_is_typed_once_and_in_order(lease, attach, ada):
    one = attach(lease)
    one.until(state="open")
    for _ in range(2):
        consoles.write(ada, lease.pk, session=one.session, sequence=1, content=b"ab")
    with pytest.raises(Conflict, match="Input 2 is missing"):
        consoles.write(ada, lease.pk, session=one.session, sequence=3, content=b"ef")
    consoles.write(ada, lease.pk, session=one.session, sequence=2, content=b"cd")
    one.until(b"abcd")
    assert machine(lease).typed == b"abcd"
    assert not ConsoleInput.objects.exists()


def test_secrets_are_in_no_record_however_they_are_printed(lease, attach):
    one = attach(lease)
    one.until(state="open")
    text = f"user administrator, password {SECRET}, again ".encode()
    for byte in text:
        machine(lease).print(bytes([byte]))
        time.sleep(0.002)
    machine(lease).print(SECRET.encode() + b"\r\nend")
    assert one.until(b"end") == b"user administrator, password ***, again ***\r\nend"
    assert SECRET not in str([bytes(row.content) for row in ConsoleOutput.objects.all()])
    assert SECRET not in consoles.shown(one.who, lease.pk).text


def test_a_flood_stays_bounded_and_the_newest_is_kept(lease, attach, ada):
    one = attach(lease)
    one.until(state="open")
    for n in range(40):
        machine(lease).print(b"".join(b"%06d\n" % k for k in range(n * 3000, n * 3000 + 3000)))
    machine(lease).print(b"the end")
    end = time.monotonic() + 60
    while Console.objects.get().size < 840_007:
        assert time.monotonic() < end
        consoles.read(ada, lease.pk, offset=0)
        one.look(0.2)
    kept = sum(row.end - row.start for row in ConsoleOutput.objects.all())
    assert record.KEPT <= kept <= record.KEPT + (32 << 10)
    assert ConsoleOutput.objects.count() < 150
    begins = consoles.read(ada, lease.pk, offset=5)
    assert begins.offset == 840_007 - kept, "what is no longer kept is left out"
    assert consoles.shown(ada, lease.pk).source == "provider", "the fake kind has a snapshot too"
    assert record.newest(lease.pk, 20).endswith(b"119999\nthe end")


def test_single_bytes_do_not_make_a_row_each(lease, attach):
    one = attach(lease)
    one.until(state="open")
    for n in range(60):
        machine(lease).print(b"%d " % n)
        time.sleep(0.05)
    one.until(b"59 ")
    assert ConsoleOutput.objects.count() < 5


def test_the_console_ends_with_the_lease_and_so_does_its_record(lease, attach, ada, until):
    one = attach(lease)
    one.until(state="open")
    machine(lease).print(b"private")
    one.until(b"private")
    release.release(lease.pk, actor="ada")
    for call in (
        lambda: one.look(), lambda: one.type(b"x"), lambda: attach(lease), lambda: consoles.shown(ada, lease.pk)
    ):  # fmt: skip
        with pytest.raises(LeaseEnded):
            call()
    closed(machine(lease))
    one.leave()
    until(lease, state="destroyed")
    end = time.monotonic() + 20
    while ConsoleOutput.objects.exists() or ConsoleAttachment.objects.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_dies_is_replaced_by_the_next_that_serves_a_reader(lease, attach, monkeypatch):
    one = attach(lease)
    one.until(state="open")
    machine(lease).print(b"before ")
    one.until(b"before ")
    dead, _ = pump._pumps.pop(lease.pk), monkeypatch.setattr(pump, "_released", lambda *_: None)
    dead.stop()
    dead.join(20)
    machine(lease).occupied = True  # a BMC keeps the session of the dead process
    one.look(wait=0)
    assert machine(lease).opened == 1, "its token has not expired"
    Console.objects.update(token_until=timezone.now() - dt.timedelta(seconds=1))
    one.until(state="open")
    machine(lease).print(b"after")
    assert one.until(b"before after")
    assert machine(lease).opened == 2
    one.type(b"!")
    one.until(b"!")


def test_a_process_without_its_token_stops_writing(lease, attach):
    one = attach(lease)
    one.until(state="open")
    running = pump._pumps[lease.pk]
    Console.objects.update(
        token="00000000-0000-0000-0000-000000000000", token_until=timezone.now() + dt.timedelta(hours=1)
    )
    machine(lease).print(b"late")
    running.join(20)
    assert not running.is_alive()
    assert not ConsoleOutput.objects.exists()
    assert machine(lease).closed == 1


def test_a_child_of_a_fork_has_no_lines_of_its_parent(lease, attach):
    attach(lease).until(state="open")
    pid = os.fork()
    if not pid:
        os._exit(len(pump._pumps))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(pump._pumps) == 1


def test_why_a_console_was_closed_is_told_and_attaching_opens_it_again(lease, attach, monkeypatch):
    machine(lease).occupied = True
    one = attach(lease)
    one.until(state="closed")
    assert one.last.message == "Another session uses the console of the machine."
    one = attach(lease, take=True)
    one.until(state="open")
    machine(lease).cut()
    one.until(state="closed")
    assert one.last.message == "The console cannot be used: The console was closed at the other end."
    with pytest.raises(Conflict, match=r"closed at the other end.*--attach"):
        one.type(b"x")

    def broken(deadline: Any, take: bool) -> Any:
        raise ConnectionLost(f"10.0.0.9 said {SECRET}")

    monkeypatch.setattr(machine(lease), "_connect", broken)
    one = attach(lease)
    one.until(state="closed")
    assert one.last.message == "The connection to the console was lost."


def test_why_a_console_was_closed_is_told_to_one_that_reads_at_the_same_time(lease, attach, monkeypatch):
    one = attach(lease)
    one.until(state="open")
    live = attachments.live

    def closed_before(lease_id: int) -> Any:
        monkeypatch.undo()
        machine(lease).cut()
        end = time.monotonic() + 20
        while live(lease_id):
            assert time.monotonic() < end
            time.sleep(0.02)
        return []

    monkeypatch.setattr(attachments, "live", closed_before)
    seen = consoles.read(one.who, lease.pk, offset=one.last.next_offset, session=one.session)
    assert (seen.state, seen.message) == (
        "closed",
        "The console cannot be used: The console was closed at the other end.",
    )


def test_a_console_that_nobody_uses_is_closed(lease, attach, settings, monkeypatch):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"console_idle_seconds": 0.5})
    one = attach(lease)
    one.until(state="closed")
    assert "nothing was typed or printed" in one.last.message
    monkeypatch.undo()
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"console_idle_seconds": 3600.0})
    one = attach(lease)
    one.until(state="open")
    ConsoleAttachment.objects.update(until=timezone.now())
    closed(machine(lease))
    assert one.look().state == "closed"
    assert one.last.message == attachments.GONE


def test_only_the_owner_and_operators_reach_a_console(lease, attach):
    bob = caller(User.objects.create_user("bob"))
    with pytest.raises(NotFound):
        attach(lease, bob)
    one = attach(lease)
    for call in (
        lambda: consoles.read(bob, lease.pk),
        lambda: consoles.detach(bob, lease.pk, session=one.session),
        lambda: consoles.write(bob, lease.pk, session=one.session, sequence=1, content=b"x"),
        lambda: consoles.shown(bob, lease.pk),
    ):
        with pytest.raises(NotFound):
            call()


@pytest.fixture
def halves(blueprint: Callable[..., Any], ask: Callable[..., Any], until: Callable[..., Any]) -> tuple[Lease, Lease]:
    """Two leases on one machine."""
    blueprint(config={"capacity": {"slots": 4}}, max_resources=1)
    first, second = (until(ask(), state="active") for _ in range(2))
    assert first.resource_id == second.resource_id
    return first, second


def test_a_part_of_a_machine_is_not_enough_and_one_lease_has_its_console(halves, attach, operator):
    first, second = halves
    with pytest.raises(NotAllowed, match="only a part"):
        attach(first)
    opened = attach(first, operator)
    opened.until(state="open")
    with pytest.raises(Conflict, match=f"open for lease {first.pk}"):
        attach(second, operator)
    opened.leave()
    closed(machine(first))
    end = time.monotonic() + 20
    while Console.objects.exclude(token=None).exists():
        assert time.monotonic() < end
    attach(second, operator).until(state="open")


def test_one_machine_has_one_open_console_whatever_the_code_does(halves, attach, operator):
    first, second = halves
    attach(first, operator).until(state="open")
    attachments.attach(second.pk, second.resource_id, "root", session=None, read_only=False, take=False)
    pump.ensure(second.pk)
    assert second.pk not in pump._pumps
    with pytest.raises(IntegrityError):
        Console.objects.filter(pk=second.pk).update(token="00000000-0000-0000-0000-000000000000")


def test_what_makes_no_sense_is_refused(lease, attach, ada):
    with pytest.raises(InvalidRequest, match="only reads"):
        attach(lease, read_only=True, take=True)
    one = attach(lease)
    for call, said in (
        (lambda: consoles.read(ada, lease.pk, session="x"), "not one that attaching"),
        (lambda: consoles.read(ada, lease.pk, offset=-1), "offset"),
        (lambda: consoles.read(ada, lease.pk, limit=1 << 30), "limit"),
        (lambda: consoles.read(ada, lease.pk, wait=1e9), "wait"),
        (lambda: consoles.write(ada, lease.pk, session=one.session, sequence=1, content=b""), "from 1 to 8192"),
        (lambda: consoles.write(ada, lease.pk, session=one.session, sequence=1, content=b"x" * 8193), "from 1 to 8192"),
        (lambda: consoles.write(ada, lease.pk, session=one.session, sequence=0, content=b"x"), "numbered from 1"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            call()
    assert not ConsoleInput.objects.exists()


def test_what_waits_for_a_machine_is_bounded(lease, attach, monkeypatch):
    one = attach(lease)
    one.until(state="open")
    monkeypatch.setattr(pump.Pump, "_type", lambda *_: None)
    time.sleep(0.3)
    for _ in range(8):
        one.type(b"x" * 8192)
    with pytest.raises(Busy, match="takes no more input"):
        one.type(b"x")
    monkeypatch.setattr(attachments, "MOST", 1)
    with pytest.raises(Busy, match="1 programs are attached"):
        attach(lease)


def test_the_record_is_shown_as_text_where_the_provider_has_none(attach, blueprint, ask, until, operator):
    blueprint(config={"capacity": {"slots": 1}, "lacks": ["consoles"]})
    found = until(ask(exclusive=True), state="active")
    shown = consoles.shown(operator, found.pk)
    assert (shown.source, shown.text, shown.attachable, shown.attached, shown.writer) == ("record", "", True, (), "")
    one = attach(found)
    one.until(state="open")
    machine(found).print(b"\x1b[2J\x1b]0;owned\x07boot\r\n\x1b[31mok")
    assert b"\x1b]0;owned" in one.until(b"ok"), "who is attached gets every byte"
    shown = consoles.shown(operator, found.pk)
    assert (shown.text, shown.attached, shown.writer) == ("boot\nok", ("ada",), "ada")
    assert Event.objects.filter(kind="machine.console", actor="root").count() == 2


def test_a_kind_without_a_console_says_so(lease, attach, ada, monkeypatch):
    monkeypatch.setattr(Fake, "interfaces", lambda _: {})
    with pytest.raises(NotSupported, match="cannot attach to the console"):
        attach(lease)
    shown = consoles.shown(ada, lease.pk)
    assert (shown.source, shown.attachable) == ("provider", False)


def test_records_that_a_dead_process_left_are_pruned(lease, attach, until):
    one = attach(lease)
    one.until(state="open")
    pump.stop_all(20)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    ConsoleOutput.objects.create(lease_id=lease.pk, start=10**6, end=10**6 + 1, content=b"x")
    pruning.CONSOLES.until = 0.0
    assert pruning.prune_consoles() == 1
    assert not ConsoleOutput.objects.exists()
    assert pruning.prune_consoles() == 0
