"""The URLs of the API: `path("api/", include("leases.rest.urls"))`."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, path, re_path, register_converter, resolve
from django.urls.converters import StringConverter
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.views import SpectacularSwaggerSplitView

from leases.rest import agents, declared, files, problems, schema, views


class IdConverter:
    """Matches ids that the database can store. Paths with other numbers are not found."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Return the id as an integer. Raises ValueError for a number that no row can have."""
        if (number := int(value)) >= 1 << 63:
            raise ValueError("beyond every id")
        return number

    def to_url(self, value: int) -> str:
        """Return the id as text."""
        return str(value)


class WordConverter(StringConverter):
    """Matches names of blueprints, kinds and credentials."""

    regex = "[A-Za-z0-9._-]{1,63}"


class UserConverter(StringConverter):
    """Matches user names in the form that Django accepts."""

    regex = r"[\w.@+-]{1,150}"


register_converter(IdConverter, "id")
register_converter(UserConverter, "user")
register_converter(WordConverter, "word")

SLASHED = r"^v1/(?:instances|locations|instance-types|offers|orphans|usage|fleet)(?:/[a-z0-9]+){0,2}/$"
"""Paths that are also served with a trailing slash, which other control planes use."""


@csrf_exempt
def without_slash(request: HttpRequest) -> HttpResponseBase:
    """Serve the path without its trailing slash. A redirect would lose the body of a POST."""
    path = request.path_info.removesuffix("/")
    try:
        found = resolve(path)
    except Resolver404:
        return problems.nothing_here(request)
    request.resolver_match = found
    answer: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
    return answer


BY_HAND = {
    "me": views.Myself,
    "tokens": views.Tokens,
    "tokens/<id:id>": views.Token,
    "leases/<id:id>/file": files.File,
    "leases/<id:id>/tree": files.Tree,
    "leases/<id:id>/page": files.Page,
    "leases/<id:id>/pages": files.Pages,
    "usage": views.Usage,
    "usage/records": views.UsageRecords,
}
"""Paths with methods that are written by hand. Other methods of these paths are declared operations."""
V1 = declared.views(BY_HAND)
schema.register(V1)
OPEN: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

urlpatterns = [
    *agents.URLS,  # first, because they are few and called most often
    *(path(f"v1/{address}", view.as_view()) for address, view in V1.items()),
    path("schema/", views.Document.as_view(**OPEN), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema", **OPEN), name="docs"),
    re_path(SLASHED, without_slash),
    re_path("", problems.nothing_here),
]
