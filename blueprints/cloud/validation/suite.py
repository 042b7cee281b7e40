"""The checks carried out: in order, each bounded, and the clean-up whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Collection

from blueprints.cloud.client import capabilities
from blueprints.cloud.validation.checks import CHEAP, CHECKS, NAMES, Check
from blueprints.cloud.validation.ground import Ground
from blueprints.cloud.validation.values import Finding, Report, Verdict
from blueprints.cloud.validation.waiting import LeftOut
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest

_LAST = "nothing-left"


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> frozenset[str]:
    """The names of the checks that are wanted, with those that they need. What was made is looked for in any case.
    Raises InvalidRequest for a name that is none."""
    for field, names in (("only", only), ("skip", skip)):
        if wrong := sorted(set(names) - set(NAMES)):
            raise InvalidRequest(
                f"There is no check {wrong[0]!r}.", field=field, hint=f"There are: {', '.join(NAMES)}."
            )
    wanted = set(only or NAMES) - set(skip)
    for one in reversed(CHECKS):
        if one.name in wanted and one.after:
            wanted.add(one.after)
    return frozenset(wanted if wanted <= set(CHEAP) else wanted | {_LAST})


class Suite:
    """One run. `told` hears of each check as it begins (None), and of its finding."""

    def __init__(
        self, ground: Ground, *, wanted: Collection[str] | None = None,
        told: Callable[[Check, Finding | None], None] = lambda check, finding: None,
    ) -> None:  # fmt: skip
        self.ground, self._told = ground, told
        self._wanted = chosen() if wanted is None else frozenset(wanted)
        self._able = capabilities(type(ground.client))
        self._findings: dict[str, Finding] = {}
        self.left: list[str] = []
        """Sentences about what the clean-up could not end."""

    def run(self) -> Report:
        """All that is wanted. Whatever ends it early (a signal too) goes on its way after the clean-up; what that
        could not end is in `left` and in the journal."""
        began, began_at = clock.monotonic(), clock.now()
        try:
            for check in CHECKS:
                self._findings[check.name] = self._find(check, clock.monotonic() - began)
        finally:
            # The last check has tried for all the time there is.
            tried = _LAST in self._findings and self._findings[_LAST].verdict is Verdict.FAILED
            self.left = sorted(self.ground.made) if tried else self.ground.clear()
        wish = self.ground.wish
        return Report(
            provider=self.ground.client.provider, run=self.ground.marks.run, began_at=began_at,
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
        """The finding of a check that is not carried out."""
        if check.name not in self._wanted:
            return _finding(check, Verdict.SKIPPED, "Not wanted.")
        if check.needs and check.needs not in self._able:
            return _finding(check, Verdict.NOT_SUPPORTED, f"The client does not say {check.needs}.")
        if check.lacks and check.lacks in self._able:
            return _finding(check, Verdict.NOT_SUPPORTED, f"The client says {check.lacks}.")
        before = self._findings[check.after].verdict if check.after else Verdict.PASSED
        if before is not Verdict.PASSED:
            verdict = before if before is Verdict.NOT_SUPPORTED else Verdict.NOT_RUN
            return _finding(check, verdict, f"It needs {check.after}, which is {before}.")
        if elapsed > self.ground.limits.all and check.name != _LAST:
            return _finding(check, Verdict.NOT_RUN, f"{self.ground.limits.all:.0f} s are over.")
        return None

    def _carried_out(self, check: Check) -> Finding:
        began = clock.monotonic()
        self.ground.waiting.limit(check.limit)
        try:
            message, verdict = check.act(self.ground), Verdict.PASSED
        except LeftOut as left_out:
            message, verdict = left_out.message, Verdict.SKIPPED
        except DrydockError as error:
            message, verdict = error.message, Verdict.FAILED
        except Exception as error:
            # A client may raise CloudError alone: anything else is a fault of it.
            message, verdict = f"It raised {type(error).__name__}: {error}"[:500], Verdict.FAILED
        return _finding(check, verdict, message, clock.monotonic() - began)


def _finding(check: Check, verdict: Verdict, message: str, seconds: float = 0.0) -> Finding:
    return Finding(check=check.name, verdict=verdict, message=message, seconds=seconds)
