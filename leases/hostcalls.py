"""Calls of the web process to leased hosts. Tenants control their hosts, so each call has a place among the threads and
a deadline of seconds, and what went wrong names the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.conf import settings

from interfaces.deadline import answering_within
from interfaces.errors import DeadlineExceeded
from leases.models import Job, Lease, Resource
from leases.places import PLACES

_CALLING: ContextVar[bool] = ContextVar("calling", default=False)


class HostSilent(DeadlineExceeded):
    """The host did not answer in time; what was asked of it may have been done."""

    code = "host_silent"


@contextmanager
def calling(user: int, name: Callable[[], str]) -> Iterator[None]:
    """Hold a place of `user`, and let every operation of an interface end within `DRYDOCK_HOST_SECONDS`.

    Raises Busy where all places are taken, and HostSilent, with the host's name, when the time runs out.
    """
    seconds = float(settings.DRYDOCK.host_seconds)
    what = "As many requests are waiting for the answers of hosts as may at the same time."
    with PLACES.held("host", user, what), answering_within(seconds):
        token = _CALLING.set(True)
        try:
            yield
        except DeadlineExceeded as error:
            raise HostSilent(
                f"{name()} did not answer within {seconds:g} s.",
                hint="It may be overloaded, or its processes may have been stopped. Try again later.",
            ) from error
        finally:
            _CALLING.reset(token)


def in_call() -> bool:
    """Whether this thread holds a place for a call to a host."""
    return _CALLING.get()


def of_lease(id: int) -> str:
    """The host of a lease, in words."""
    found = Lease.objects.filter(pk=id).values_list("resource__name", flat=True).first()
    return f"The host of lease {id} ({found})" if found else f"The host of lease {id}"


def of_job(id: int) -> str:
    """The host of a job, in words."""
    lease = Job.objects.filter(pk=id).values_list("lease_id", flat=True).first()
    return f"The host of job {id}" if lease is None else of_lease(lease)


def of_resource(id: int) -> str:
    """A resource as a host, in words."""
    found = Resource.objects.filter(pk=id).values_list("name", flat=True).first()
    return f"Resource {id} ({found})" if found else f"Resource {id}"
