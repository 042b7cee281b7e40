"""Calls from the web process to leased hosts.

Tenants control their hosts, so every call is limited to a few seconds and a share of the threads, and its errors name
the host.
"""

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
    """The host did not answer in time. The request may have been carried out."""

    code = "host_silent"


@contextmanager
def calling(user: int, name: Callable[[], str]) -> Iterator[None]:
    """Limit every call of an interface in this block to `DRYDOCK_HOST_SECONDS`. `user` is the id of the caller.

    Raises NoPlace if too many requests are already waiting for hosts, and HostSilent with the name of the host if a
    call times out.
    """
    seconds = float(settings.DRYDOCK.host_seconds)
    what = "Too many requests are waiting for answers from hosts."
    with PLACES.held("host", user, what), answering_within(seconds):
        token = _CALLING.set(True)
        try:
            yield
        except DeadlineExceeded as error:
            raise HostSilent(
                f"{name()} did not answer within {seconds:g} s.",
                hint="The host may be overloaded, or its processes may have been stopped. Try again later.",
            ) from error
        finally:
            _CALLING.reset(token)


def in_call() -> bool:
    """Return whether this code runs inside a `calling` block."""
    return _CALLING.get()


def of_lease(id: int) -> str:
    """Return a phrase that names the host of a lease."""
    found = Lease.objects.filter(pk=id).values_list("resource__name", flat=True).first()
    return f"The host of lease {id} ({found})" if found else f"The host of lease {id}"


def of_job(id: int) -> str:
    """Return a phrase that names the host of a job."""
    lease = Job.objects.filter(pk=id).values_list("lease_id", flat=True).first()
    return f"The host of job {id}" if lease is None else of_lease(lease)


def of_resource(id: int) -> str:
    """Return a phrase that names a resource, which is a host."""
    found = Resource.objects.filter(pk=id).values_list("name", flat=True).first()
    return f"Resource {id} ({found})" if found else f"Resource {id}"
