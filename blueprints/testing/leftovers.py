"""Conformance: nothing that a lease plants on a real host remains for the next lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from blueprints.contract import Activates, Cleans
from blueprints.leftovers import ROWS, Party, Planted, Report, Row, Suite
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.phases import Phases, needs
from interfaces.command import Command


class Leftovers(Phases):
    """Leases on real hosts, with the leftover suite (`blueprints.leftovers`). Benches enable it with `on_host`."""

    @needs(Activates)
    def test_nothing_that_a_lease_plants_outlives_it(self) -> None:
        planted, report = self.outlived(self.built())
        assert not report.survived, described(report)
        assert not report.unanswered
        assert report.ok, described(report)
        missing = set(self.must_be_planted()) & set(planted.refused)
        assert not missing, {name: planted.refused[name] for name in missing}

    def outlived(self, resource: ResourceView, rows: Iterable[Row] = ROWS) -> tuple[Planted, Report]:
        """Plant the rows with one lease, end it, look for them with the next lease, and destroy the resource."""
        beside = self.neighbour(resource)
        lease = self.activated(self._named(resource, "first"))
        suite, other = Suite(rows), self._party(beside, "the lease beside") if beside else None
        planted = suite.plant(
            self._party(lease, "the lease"), own_account=self.own_account(lease), above=self.home_above(lease),
            beside=other,
        )  # fmt: skip
        resource = self._ended(lease)
        after = self.activated(self._named(resource, "next"))
        report = suite.look(
            planted, self._party(after, "the next lease"), beside=other, outside=self.outside_looks()
        )  # fmt: skip
        for one in (after, beside):
            if one:
                self.ready("deactivate", one.resource, one)
        self.destroyed(resource)
        return planted, report

    def _ended(self, lease: LeaseView) -> ResourceView:
        """End a lease and return the resource for the next one: cleaned, or another one if it is not reusable."""
        resource = lease.resource
        self.ready("deactivate", resource, lease)
        if not self.kind.reusable_after(lease):
            self.destroyed(resource)
            return self.built()
        if isinstance(self.kind, Cleans):
            self.ready("clean", resource, lease)
        return resource

    def _named(self, resource: ResourceView, name: str) -> LeaseView:
        lease = self.lease(resource)
        return replace(lease, key=f"{lease.key}-{name}")

    def _party(self, lease: LeaseView, name: str) -> Party:
        command = lease.interface("command")
        assert isinstance(command, Command)
        return Party.of(command, name)


def described(report: Report) -> str:
    """Return the findings as lines of text."""
    return "\n".join(f"{one.verdict.value:12} {one.row:24} {one.message}" for one in report.findings)
