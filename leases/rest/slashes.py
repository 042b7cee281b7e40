"""Addresses with a trailing slash, as other control planes use them.

They are served without a redirect, which would lose the body of a POST.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, resolve
from django.views.decorators.csrf import csrf_exempt

from leases.rest import problems

ADDRESSES = r"^v1/(?:instances|locations|instance-types|offers|orphans|usage|fleet)(?:/[a-z0-9]+){0,2}/$"


@csrf_exempt
def without(request: HttpRequest) -> HttpResponseBase:
    """Serve the address without its trailing slash."""
    path = request.path_info.removesuffix("/")
    try:
        found = resolve(path)
    except Resolver404:
        return problems.nothing_here(request)
    request.resolver_match = found
    answer: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
    return answer
