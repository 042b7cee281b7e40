"""The outcomes of workloads: a code, a sentence for people, and the reason with which the lease ends."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import NamedTuple

from blueprints.units import podman
from interfaces.command import container
from leases.models.job import Job
from leases.reasons import Reason


class Outcome(StrEnum):
    """The outcome of a workload."""

    EXITED = "exited"
    """The workload ended by itself. Its exit code says whether it succeeded."""
    SIGNAL = "signal"
    """A signal ended the workload. Its exit code is 128 plus the number of the signal."""
    NO_IMAGE = "no_image"
    """The image of the workload could not be pulled."""
    NO_PODMAN = "no_podman"
    """The host of the workload has no podman."""
    BAD_ARCHIVE = "bad_archive"
    """The archive of the image that was copied to the host is not the one that was requested."""
    NO_UNITS = "no_units"
    """The host of the workload cannot run units, which ports and archives need."""
    LOST = "lost"
    """The workload disappeared without an exit code, or its host disappeared."""
    CANCELLED = "cancelled"
    """Somebody cancelled the job of the workload."""
    CUT = "cut"
    """The lease ended before the workload did."""
    NEVER = "never"
    """The lease ended before the workload began."""


class End(NamedTuple):
    """The outcome of a workload, and a sentence that describes it."""

    outcome: Outcome
    sentence: str
    well: bool = False
    """True if nobody needs to look at the outcome."""

    @property
    def reason(self) -> Reason:
        """The reason with which the lease ends after its workload."""
        return Reason.WORKLOAD_ENDED if self.well else Reason.WORKLOAD_FAILED


_PODMANS_OWN = 125

_NOT_BEGUN = {
    container.NO_PODMAN: (
        Outcome.NO_PODMAN,
        "The workload could not be started: podman is not installed on its host. Ask an operator to "
        "install it, request hosts that have it (a trait, or allowed_blueprints), or use a command "
        "instead of an image.",
    ),
    container.NO_IMAGE: (
        Outcome.NO_IMAGE,
        "The workload could not be started: its host could not pull the image {image}. The output has "
        "the reason. Check the name of the image, and whether the host can reach the registry.",
    ),
    podman.BAD_ARCHIVE: (
        Outcome.BAD_ARCHIVE,
        "The workload could not be started: the archive that was copied to its host does not have the SHA-256 {image}. "
        "Ask an operator to check the file in the folder DRYDOCK_ARCHIVES of the workers.",
    ),
    podman.NO_UNITS: (
        Outcome.NO_UNITS,
        "The workload could not be started: ports and archives need a host that has systemd, podman and control groups "
        "of version 2, and whose leases have accounts of their own or root's. Request such a host (a trait, or "
        "allowed_blueprints), or omit ports and archive.",
    ),
}


def of_job(state: str, *, exit_code: int | None, message: str = "", cause: str = "", image: str = "") -> End:
    """Return the outcome of a workload, as determined by the end of its job.

    `cause` is the cause that the start script of the workload recorded (`interfaces.command.container`).
    """
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
    podman = (
        " Podman itself exits with this code if it cannot run a container."
        if image and exit_code == _PODMANS_OWN
        else ""
    )
    return End(Outcome.EXITED, f"The workload has failed with exit code {exit_code}.{podman}")


def cut(why: str, *, begun: bool) -> End:
    """Return the outcome of a workload whose lease ended first. `begun` is False if the workload was not started."""
    if begun:
        return End(Outcome.CUT, f"The lease ended before its workload: {why}")
    return End(Outcome.NEVER, f"The lease ended before its workload started: {why}")


def signal_of(exit_code: int | None) -> int:
    """Return the signal for which an exit code stands by the convention of shells, or 0 if it stands for none."""
    number = (exit_code or 0) - 128
    return number if number in {int(one) for one in signal.Signals} else 0


def _named(number: int) -> str:
    return f"signal {number} ({signal.Signals(number).name})"
