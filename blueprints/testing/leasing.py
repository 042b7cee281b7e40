"""Conformance: what is done for a lease on a resource, and undone after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from blueprints.answers import Failed
from blueprints.contract import Activates, Cleans, Controls, Opener
from blueprints.specs import LeaseView
from blueprints.testing.bench import always_mine
from blueprints.testing.outcome import Outcome
from blueprints.testing.phases import Phases, expect_ready, needs
from blueprints.testing.rules import json_safe
from drydock.core.errors import NotSupported
from interfaces.contract import Interface
from interfaces.dpu_services import DpuServices
from interfaces.errors import LeaseEnded


class Leasing(Phases):
    """Tests of activation, deactivation, cleaning and interfaces."""

    @needs(Activates)
    def test_activating_twice_gives_the_same_access(self) -> None:
        lease = self.lease(self.built())
        after = self.activated(lease)
        once = sorted(self.access_of(after))
        json_safe("facts of the lease", after.facts)
        self.activated(lease)
        assert sorted(self.access_of(after)) == once
        self._end(after)

    @needs(Activates)
    def test_deactivating_ends_all_access_and_may_be_repeated(self) -> None:
        lease = self.activated(self.lease(self.built()))
        self.ready("deactivate", lease.resource, lease)
        assert not self.access_of(lease)
        self.ready("deactivate", lease.resource, lease)
        self.destroyed(lease.resource)

    @needs(Activates)
    def test_an_activation_on_what_does_not_answer_says_so(self) -> None:
        if not self.kind.unreachable:
            pytest.skip("its resources cannot be out of reach")
        lease = self.activated(self.lease(self.built()))
        with self.cut_off(lease.resource):
            for phase in ("activate", "check", "deactivate"):
                outcome = self.run(phase, lease.resource, None if phase == "check" else lease)
                assert isinstance(outcome.answer, Failed), f"{phase} ended {outcome.ended}: {outcome.answer}"
                assert outcome.answer.code in self.kind.unreachable, phase
        self._end(lease)

    @needs(Activates)
    def test_deactivating_what_was_never_activated_succeeds(self) -> None:
        lease = self.lease(self.built())
        self._end(lease)

    @needs(Activates)
    def test_deactivating_after_a_crash_at_any_call_of_activate_ends_all_access(self) -> None:
        resource = self.built()
        clean = self.ready("activate", resource, self.lease(resource))
        self.ready("deactivate", resource, clean.spec.lease)
        for mishap in self.mishaps("crash", clean):
            lease = self.run("activate", resource, self.lease(resource), mishap=mishap).spec.lease
            self.ready("deactivate", resource, lease)
            assert lease is not None
            assert not self.access_of(lease), f"after {mishap}"
        self.destroyed(resource)

    @needs(Activates)
    def test_activating_survives_a_process_that_dies_at_any_call(self) -> None:
        resource = self.built()
        clean = self.ready("activate", resource, self.lease(resource))
        for mishap in self.mishaps("crash", clean):
            self.ready("deactivate", resource, clean.spec.lease)
            expect_ready(self.resume(self.run("activate", resource, self.lease(resource), mishap=mishap)))
        self._end(self.lease(resource))

    @needs(Controls)
    def test_the_way_past_the_account_of_a_lease_is_not_the_leases(self) -> None:
        lease = self.activated(self.lease(self.built()))
        control = lease.control()
        if control is not None:
            assert control.uid >= 1000
            assert control.home.startswith("/")
            assert not any(path.startswith("/") or ".." in path for path in control.kept)
            self.use_control(control)
        self._end(lease)

    @needs(Cleans)
    def test_cleaning_removes_what_the_lease_left(self) -> None:
        if Cleans in self.kind.lacking(self.blueprint().config):
            pytest.skip("resources with this config are not cleaned")
        lease = self.activated(self.lease(self.built()))
        self.litter(lease)
        assert self.left_by(lease), "left_by() does not report what litter() left"
        if isinstance(self.kind, Activates):
            self.ready("deactivate", lease.resource, lease)
        clean = self.ready("clean", lease.resource, lease)
        assert not self.left_by(lease)
        self.ready("clean", lease.resource, lease)
        self._report_erasures_once(lease, clean)
        self.destroyed(lease.resource)

    @needs(Cleans)
    def test_cleaning_apart_needs_only_a_view_of_the_ended_lease(self) -> None:
        lease = self.lease(self.built())
        if not self._cleans_apart(lease):
            self.destroyed(lease.resource)
            pytest.skip("its leases keep their share until it is clean")
        lease = self.activated(lease)
        self.litter(lease)
        if isinstance(self.kind, Activates):
            self.ready("deactivate", lease.resource, lease)
        self.ready("clean", lease.resource, _ended(lease))
        assert not self.left_by(lease)
        self.destroyed(lease.resource)

    @needs(Cleans)
    def test_cleaning_apart_survives_a_process_that_dies_at_any_call(self) -> None:
        lease = self.lease(self.built())
        if not self._cleans_apart(lease):
            self.destroyed(lease.resource)
            pytest.skip("its leases keep their share until it is clean")
        lease = self.activated(lease)
        if isinstance(self.kind, Activates):
            self.ready("deactivate", lease.resource, lease)
        lease = _ended(lease)
        for mishap in self.mishaps("crash", self.ready("clean", lease.resource, lease)):
            self.litter(lease)
            expect_ready(self.resume(self.run("clean", lease.resource, lease, mishap=mishap)))
            assert not self.left_by(lease), f"after {mishap}"
        self.destroyed(lease.resource)

    def _report_erasures_once(self, lease: LeaseView, clean: Outcome) -> None:
        """Assert that a cleaning reports each disk that it erased once, also after a crash at any call."""
        expected = _erased(clean)
        assert len(expected) == len(set(expected)), f"a disk is reported more than once: {expected}"
        for mishap in self.mishaps("crash", clean) if expected else ():
            before = self.run("clean", lease.resource, lease, mishap=mishap)
            after = expect_ready(self.resume(before))
            assert sorted(_erased(before) + _erased(after)) == sorted(expected), f"after {mishap}"

    def _cleans_apart(self, lease: LeaseView) -> bool:
        return isinstance(self.kind, Cleans) and self.kind.cleans_apart(lease.resource.blueprint.config)

    def test_interfaces_open_under_their_names_and_work(self) -> None:
        openers = self.kind.interfaces()
        if not openers:
            return
        lease = self._held()
        offered = self._openers_of(openers, lease)
        assert offered, "a lease has none of the interfaces of its kind"
        for name, opener in offered.items():
            interface = opener(lease, always_mine)
            assert isinstance(interface, Interface)
            assert interface.name == name
            self.use(interface)
        self._end(lease)

    def _openers_of(self, openers: Mapping[str, Opener], lease: LeaseView) -> Mapping[str, Opener]:
        """Return the interfaces that this resource has. The others must say that it does not support them."""
        offered = dict(openers)
        for name, opener in openers.items():
            try:
                opener(lease, always_mine)
            except NotSupported as error:
                if error.capability != name:
                    raise
                del offered[name]
        return offered

    def test_interfaces_refuse_to_work_when_the_lease_is_over(self) -> None:
        openers = self.kind.interfaces()
        if not openers:
            return
        lease = self._held()
        for opener in self._openers_of(openers, lease).values():
            self._refuses(opener, lease)
        self._end(lease)

    def test_services_end_with_the_lease_also_those_that_come_too_late(self) -> None:
        if DpuServices.name not in self.kind.interfaces():
            return
        lease, opener = self._held(), self.kind.interfaces()[DpuServices.name]
        services, before = opener(lease, always_mine), sorted(self.access_of(lease))
        assert isinstance(services, DpuServices)
        services.apply(self.service())
        assert sorted(self.access_of(lease)) != before, "access_of() does not report services"
        self.ready("deactivate", lease.resource, lease)
        assert not self.access_of(lease)
        late = opener(lease, _Once())
        assert isinstance(late, DpuServices)
        with pytest.raises(LeaseEnded):
            late.apply(self.service())
        assert not self.access_of(lease), "a service that was created after the deactivation stays"
        self._end(lease)

    def _refuses(self, opener: Opener, lease: LeaseView) -> None:
        watch = _Watch()
        interface = opener(lease, watch)
        watch.over = True
        with pytest.raises(LeaseEnded):
            self.use(interface)

    def _held(self) -> LeaseView:
        return self.activated(self.lease(self.built()))

    def _end(self, lease: LeaseView) -> None:
        if isinstance(self.kind, Activates):
            self.ready("deactivate", lease.resource, lease)
        self.destroyed(lease.resource)


def _ended(lease: LeaseView) -> LeaseView:
    """Return a lease as a cleaning apart from it sees it: it holds no leases, and its interfaces refuse to work."""
    return replace(lease, parents={}, opener=_refuse)


def _refuse(lease: LeaseView, name: str) -> Interface:
    raise LeaseEnded


class _Watch:
    """A still_mine() check that passes until `over` is set; then the lease is over."""

    over = False

    def __call__(self) -> None:
        if self.over:
            raise LeaseEnded


class _Once:
    """A still_mine() check that passes once; then the lease is over, as if it ended during the first request."""

    passed = False

    def __call__(self) -> None:
        if self.passed:
            raise LeaseEnded
        self.passed = True


def _erased(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the disks in the answers of a plan that were committed."""
    answers = [call.answer for call in outcome.calls]
    if outcome.ended == "crashed":
        answers = answers[:-1]
    return [(one.disk, one.serial) for answer in answers for one in getattr(answer, "erasures", ())]
