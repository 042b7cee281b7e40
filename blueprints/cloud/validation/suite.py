"""The checks as data, and their execution: in order, each with a time limit, and with a clean-up in any case.

They follow the twelve parts of Brev's suite (v1/*_validation.go) and add what is not covered there: idempotent and lost
creates, refusals, the pinned host key, reboot, tags, disk and type, spot, expiry, a second terminate, nothing left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from blueprints.cloud.client import capabilities
from blueprints.cloud.validation import changing, creating, reading, running
from blueprints.cloud.validation.environment import Environment
from blueprints.cloud.validation.values import Finding, Report, Verdict
from blueprints.cloud.validation.waiting import LeftOut
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check.

    `act` raises `waiting.Unmet` with a sentence if the check fails, and returns a sentence for people if it passes. It
    deletes everything that it creates besides the main machine, and leaves the main machine running.
    """

    name: str
    asserts: str
    act: Callable[[Environment], str]
    needs: str = ""
    """The capability that the check requires."""
    lacks: str = ""
    """The capability whose absence the check is for: it is skipped if the client has the capability."""
    after: str = ""
    """The name of the check that must have passed before this one."""
    limit: float = 120.0
    """Time limit in seconds. A call in progress may exceed it by at most the call's own deadline."""
    makes: int = 0
    """Number of machines that exist at once for the check, besides the main one."""


CHECKS = (
    Check(name="identity", act=reading.identity, asserts="The account reports its identity, the same in two calls."),
    Check(name="locations", act=reading.locations, asserts="There is a location, and at least one is available."),
    Check(name="types", act=reading.types, limit=300.0,
          asserts=("Two listings of types agree. Ids are unique and stable, and a location's types are among those "
              "of all locations.")),
    Check(name="prices", act=reading.prices, asserts="Prices are above 0 and name their source."),
    Check(name="quotas", act=reading.quotas, needs="quota", asserts="Quotas and their usage are reported."),
    Check(name="image-choice", act=reading.image_choice,
          asserts="An image is found by its id; a nonexistent image is reported as not found."),
    Check(name="images", act=reading.images, needs="machine-image", asserts="Images are listed newest first."),
    Check(name="refused-create", act=creating.refused_create, limit=900.0, makes=1,
          asserts="A create with a nonexistent image or type is refused and leaves no machine."),
    Check(name="create", act=creating.create, limit=600.0,
          asserts="A machine is created as ordered, in time, and reports its creation time."),
    Check(name="repeated-create", act=creating.repeated_create, needs="idempotent-create", after="create", limit=600.0,
          asserts="The same token does not create a second machine, whatever the parameters."),
    Check(name="listing", act=creating.listing, after="create", limit=600.0,
          asserts=("The machine is listed by its tags, only in its location, and can be read by its id and its "
              "name.")),
    Check(name="boot", act=running.boot, after="create", limit=1200.0, asserts="The machine runs and has an address."),
    Check(name="ssh", act=running.ssh, after="boot", needs="user-data", limit=700.0,
          asserts="The control account can log in, and only the expected host key is accepted."),
    Check(name="guest", act=running.guest, after="ssh", limit=700.0,
          asserts=("cloud-init has finished, the system is the ordered Debian or Ubuntu, and the account has a "
              "home and passwordless sudo.")),
    Check(name="firewall", act=running.firewall, needs="firewall", after="ssh", limit=600.0,
          asserts="A port is reached from outside only while it is open."),
    Check(name="tags", act=running.tags, needs="tags", after="boot", limit=600.0,
          asserts="A tag is set and reported; other tags stay."),
    Check(name="console", act=running.console, needs="console-output", after="boot", limit=600.0,
          asserts="The console returns output, and not more than allowed."),
    Check(name="reboot", act=changing.reboot, needs="reboot", after="ssh", limit=1200.0,
          asserts="After a reboot the same machine is reached with the same key."),
    Check(name="resize-volume", act=changing.resize_volume, needs="resize-volume", after="ssh", limit=1800.0,
          asserts="The guest sees a larger disk."),
    Check(name="stop-start", act=changing.stop_start, needs="stop-start", after="ssh", limit=2400.0,
          asserts="A stopped machine does not answer; after a start it has the same id, disk and key."),
    Check(name="change-type", act=changing.change_type, needs="change-type", after="ssh", limit=2400.0,
          asserts="A stopped machine changes its type and runs as that type."),
    Check(name="lost-create", act=creating.lost_create, limit=1800.0, makes=1,
          asserts="A machine whose create was never answered is found by its order, and terminated by its name."),
    Check(name="spot", act=creating.spot, needs="spot", limit=1800.0, makes=1,
          asserts="A spot order creates a spot machine, or is refused and leaves none."),
    Check(name="spot-refusal", act=creating.spot_refusal, lacks="spot", limit=900.0, makes=1,
          asserts="Without spot machines, a spot order is refused."),
    Check(name="expiry", act=creating.expiry, needs="server-side-expiry", limit=1500.0, makes=1,
          asserts="The provider ends a machine by itself at its end time."),
    Check(name="terminate", act=changing.terminate, after="create", limit=1300.0,
          asserts="Terminating the machine works, as a read confirms, and terminating it again succeeds too."),
    Check(name="nothing-left", act=changing.nothing_left, limit=1300.0,
          asserts="No machine of this run is listed, and nothing is left under any of its names."),
)  # fmt: skip
NAMES = tuple(one.name for one in CHECKS)
CHEAP = tuple(one.name for one in CHECKS[: NAMES.index("refused-create")])
"""The names of the checks that create nothing."""
_LAST = "nothing-left"


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> frozenset[str]:
    """Return the names of the wanted checks and of those that they need. Leftovers are always checked.

    Raises InvalidRequest for an unknown name.
    """
    for field, names in (("only", only), ("skip", skip)):
        if wrong := sorted(set(names) - set(NAMES)):
            raise InvalidRequest(
                f"Check {wrong[0]!r} does not exist.", field=field, hint=f"Choose one of: {', '.join(NAMES)}."
            )
    wanted = set(only or NAMES) - set(skip)
    for one in reversed(CHECKS):
        if one.name in wanted and one.after:
            wanted.add(one.after)
    return frozenset(wanted if wanted <= set(CHEAP) else wanted | {_LAST})


class Suite:
    """A run of the suite. The callback `told` gets None when a check begins, and the check's finding when it ends."""

    def __init__(
        self, environment: Environment, *, wanted: Collection[str] | None = None,
        told: Callable[[Check, Finding | None], None] = lambda check, finding: None,
    ) -> None:  # fmt: skip
        self.environment, self._told = environment, told
        self._wanted = chosen() if wanted is None else frozenset(wanted)
        self._able = capabilities(type(environment.client))
        self._findings: dict[str, Finding] = {}
        self.left: list[str] = []
        """A sentence for each object that the clean-up could not delete."""

    def run(self) -> Report:
        """Run the wanted checks, then clean up.

        An exception that ends the run early (a signal too) is raised again after the clean-up. Objects that could not
        be deleted are in `left` and in the journal.
        """
        began, began_at = clock.monotonic(), clock.now()
        try:
            for check in CHECKS:
                self._findings[check.name] = self._find(check, clock.monotonic() - began)
        finally:
            # The last check has tried for all the time there is.
            tried = _LAST in self._findings and self._findings[_LAST].verdict is Verdict.FAILED
            self.left = sorted(self.environment.made) if tried else self.environment.clear()
        wish = self.environment.wish
        return Report(
            provider=self.environment.client.provider, run=self.environment.run_tags.run, began_at=began_at,
            seconds=clock.monotonic() - began, location=wish.location, type=wish.type, image=wish.image.id,
            findings=tuple(self._findings.values()), left=tuple(self.left), capabilities=tuple(sorted(self._able)),
        )  # fmt: skip

    def _find(self, check: Check, elapsed: float) -> Finding:
        found = self._spared(check, elapsed)
        if found is None:
            self._told(check, None)
            found = self._carried_out(check)
        self._told(check, found)
        return found

    def _spared(self, check: Check, elapsed: float) -> Finding | None:
        """Return the finding of a check that must not be carried out, or None if the check must be carried out."""
        if check.name not in self._wanted:
            return _finding(check, Verdict.SKIPPED, "Not requested.")
        if check.needs and check.needs not in self._able:
            return _finding(check, Verdict.NOT_SUPPORTED, f"The client does not implement {check.needs}.")
        if check.lacks and check.lacks in self._able:
            return _finding(check, Verdict.NOT_SUPPORTED, f"The check applies only to clients without {check.lacks}.")
        before = self._findings[check.after].verdict if check.after else Verdict.PASSED
        if before is not Verdict.PASSED:
            verdict = before if before is Verdict.NOT_SUPPORTED else Verdict.NOT_RUN
            return _finding(check, verdict, f"The check depends on {check.after}, whose result is: {before}.")
        if elapsed > self.environment.limits.all and check.name != _LAST:
            return _finding(
                check, Verdict.NOT_RUN, f"The time limit of {self.environment.limits.all:.0f} s is reached."
            )
        return None

    def _carried_out(self, check: Check) -> Finding:
        began = clock.monotonic()
        self.environment.waiting.limit(check.limit)
        try:
            message, verdict = check.act(self.environment), Verdict.PASSED
        except LeftOut as left_out:
            message, verdict = left_out.message, Verdict.SKIPPED
        except DrydockError as error:
            message, verdict = error.message, Verdict.FAILED
        except Exception as error:
            # A client may raise CloudError alone: anything else is a fault of it.
            message, verdict = f"The check raised {type(error).__name__}: {error}"[:500], Verdict.FAILED
        return _finding(check, verdict, message, clock.monotonic() - began)


def _finding(check: Check, verdict: Verdict, message: str, seconds: float = 0.0) -> Finding:
    return Finding(check=check.name, verdict=verdict, message=message, seconds=seconds)
