"""How a workload ended: a word, a sentence for a person, and the reason for which its lease ends with it."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import NamedTuple

from interfaces.command import container
from leases.models.job import Job
from leases.reasons import Reason


class Outcome(StrEnum):
    """How a workload ended."""

    EXITED = "exited"
    """By itself; the exit code says whether well."""
    SIGNAL = "signal"
    """A signal ended it: its exit code is 128 and the signal's number."""
    NO_IMAGE = "no_image"
    """Its image could not be pulled."""
    NO_PODMAN = "no_podman"
    """Its host has no podman."""
    LOST = "lost"
    """It is gone without an exit code, or its host is."""
    CANCELLED = "cancelled"
    """Somebody cancelled its job."""
    CUT = "cut"
    """Its lease ended first."""
    NEVER = "never"
    """Its lease ended before it had begun."""


class End(NamedTuple):
    """How it ended, and what is said of it."""

    outcome: Outcome
    sentence: str
    well: bool = False
    """Nobody needs to look into it."""

    @property
    def reason(self) -> Reason:
        """Why the lease ends with it."""
        return Reason.WORKLOAD_ENDED if self.well else Reason.WORKLOAD_FAILED


_PODMANS_OWN = 125
_NOT_BEGUN = {
    container.NO_PODMAN: (
        Outcome.NO_PODMAN,
        "The workload could not begin: its host has no podman. Have an operator install it there, ask for hosts that "
        "have it (a trait, or allowed_blueprints), or give a command instead of an image.",
    ),
    container.NO_IMAGE: (
        Outcome.NO_IMAGE,
        "The workload could not begin: its host could not pull the image {image}. The output says why; look at its "
        "name, and whether the host reaches its registry.",
    ),
}


def of_job(state: str, *, exit_code: int | None, message: str = "", cause: str = "", image: str = "") -> End:
    """The end of a workload whose job is over. `cause`: what its start left (`interfaces.command.container`)."""
    if state == Job.State.CANCELLED:
        return End(Outcome.CANCELLED, "The workload was cancelled.", well=True)
    if state == Job.State.LOST or exit_code is None:
        return End(Outcome.LOST, f"The workload is lost. {message}".strip())
    if image and cause in _NOT_BEGUN and exit_code == _PODMANS_OWN:
        outcome, sentence = _NOT_BEGUN[cause]
        return End(outcome, sentence.format(image=image))
    if number := signal_of(exit_code):
        return End(Outcome.SIGNAL, f"The workload was ended by {_named(number)}.")
    if not exit_code:
        return End(Outcome.EXITED, "The workload has ended with exit code 0.", well=True)
    podman = " Podman itself ends so when it cannot run a container." if image and exit_code == _PODMANS_OWN else ""
    return End(Outcome.EXITED, f"The workload has failed with exit code {exit_code}.{podman}")


def cut(why: str, *, begun: bool) -> End:
    """The lease ended before its workload, or before that had begun."""
    if begun:
        return End(Outcome.CUT, f"The lease ended before its workload: {why}")
    return End(Outcome.NEVER, f"The lease ended before its workload had begun: {why}")


def signal_of(exit_code: int | None) -> int:
    """The signal that an exit code stands for, as shells write it; 0 for none."""
    number = (exit_code or 0) - 128
    return number if number in {int(one) for one in signal.Signals} else 0


def _named(number: int) -> str:
    return f"signal {number} ({signal.Signals(number).name})"
