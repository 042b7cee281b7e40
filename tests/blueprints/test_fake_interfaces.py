"""The interfaces of a fake lease: scripted by a test, shared by all who open them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blueprints.fake.openers import fakes
from blueprints.specs import LeaseView
from interfaces.command.contract import Command
from interfaces.command.fake import Reply
from interfaces.errors import LeaseEnded
from interfaces.filesystem.contract import Filesystem
from interfaces.httpd.contract import Httpd
from tests.blueprints.fake_bench import FakeBench


@pytest.fixture
def lease() -> LeaseView:
    bench = FakeBench()
    return bench.lease(bench.resource())


def test_a_test_says_what_a_command_answers(lease: LeaseView) -> None:
    fakes(lease.key).command.reply("^uname", Reply(stdout=b"Fake\n"))
    command = lease.interface("command")
    assert isinstance(command, Command)
    assert command.run(["uname", "-a"]).stdout == b"Fake\n"
    assert [call.words for call in fakes(lease.key).command.calls] == [["uname", "-a"]]


def test_what_is_written_is_there_at_the_next_opening(lease: LeaseView) -> None:
    first, second = lease.interface("filesystem"), lease.interface("filesystem")
    assert isinstance(first, Filesystem)
    assert isinstance(second, Filesystem)
    first.write_bytes("notes", b"kept")
    assert second.read_bytes("notes") == b"kept"


def test_a_page_is_published_among_the_leases_files(lease: LeaseView) -> None:
    httpd = lease.interface("httpd")
    assert isinstance(httpd, Httpd)
    httpd.publish("index.html", "hello")
    httpd.start()
    assert fakes(lease.key).httpd.fetch("index.html") == b"hello"
    assert fakes(lease.key).filesystem.read_bytes("www/index.html") == b"hello"


def test_another_lease_has_its_own(lease: LeaseView) -> None:
    fakes(lease.key).filesystem.write_bytes("mine", b"")
    assert not fakes(replace(lease, key="another").key).filesystem.exists("mine")


def test_a_lease_that_is_over_is_refused(lease: LeaseView) -> None:
    def over() -> None:
        raise LeaseEnded

    command = FakeBench().kind.interfaces()["command"](lease, over)
    assert isinstance(command, Command)
    with pytest.raises(LeaseEnded):
        command.run(["true"])
