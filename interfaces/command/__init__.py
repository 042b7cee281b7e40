"""Commands on a leased host: run, stream, check, cancel, and jobs that outlive a request."""

from interfaces.command.contract import Command, CommandResult, Output
from interfaces.command.jobs import Job, JobOutput, Jobs, JobSpec, JobState
from interfaces.command.shell import ShellCommand

__all__ = [
    "Command",
    "CommandResult",
    "Job",
    "JobOutput",
    "JobSpec",
    "JobState",
    "Jobs",
    "Output",
    "ShellCommand",
]
