"""Commands on a leased host, and jobs that outlive the request."""

from interfaces.command.contract import Command, Output
from interfaces.command.jobs import Job, JobOutput, Jobs, JobSpec, JobState
from interfaces.command.result import CommandResult
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
