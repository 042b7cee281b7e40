"""The URLs of the API: `path("api/", include("leases.rest.urls"))`."""

from __future__ import annotations

from typing import Any

from django.urls import path, re_path, register_converter
from django.urls.converters import StringConverter
from drf_spectacular.views import SpectacularSwaggerSplitView

from leases.rest import declared, links, problems, slashes
from leases.rest.document import Document
from leases.rest.views import (
    access,
    blueprints,
    files,
    instances,
    leases,
    machines,
    offers,
    resources,
    serving,
    tokens,
    upkeep,
    usage,
    work,
)


class IdConverter:
    """Matches ids within the range of the database; other numbers are not found."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Convert to an integer. Raises ValueError for a number that no row can have."""
        if (number := int(value)) >= 1 << 63:
            raise ValueError("beyond every id")
        return number

    def to_url(self, value: int) -> str:
        """Return the number as text."""
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

BY_HAND = {
    "me": access.Myself,
    "tokens": tokens.Tokens,
    "tokens/<id:id>": tokens.Token,
    "leases": leases.Leases,
    "leases/<id:id>": leases.Lease,
    "leases/<id:id>/resolve": leases.Resolve,
    "leases/<id:id>/machine": machines.OfLease,
    "leases/<id:id>/console": machines.ConsoleOfLease,
    **{f"leases/<id:id>/{act}": view for act, view in machines.OF_LEASES.items()},
    "leases/<id:id>/events": leases.Events,
    "leases/<id:id>/jobs": work.LeaseJobs,
    "leases/<id:id>/file": files.File,
    "leases/<id:id>/tree": files.Tree,
    "leases/<id:id>/page": serving.Page,
    "leases/<id:id>/pages": serving.Pages,
    "leases/<id:id>/server": serving.Server,
    "leases/<id:id>/server/log": serving.Log,
    "explain": leases.Explain,
    "groups": leases.Groups,
    "groups/<id:id>": leases.Group,
    "jobs/<id:id>/output": work.Output,
    "resources": resources.Resources,
    "resources/<id:id>/resolve": resources.Resolve,
    "resources/<id:id>/machine": machines.OfResource,
    "resources/<id:id>/console": machines.ConsoleOfResource,
    **{f"resources/<id:id>/{act}": view for act, view in machines.OF_RESOURCES.items()},
    "blueprints": blueprints.Blueprints,
    "blueprints/<word:name>": blueprints.Blueprint,
    "blueprints/<word:name>/host-keys": blueprints.HostKeys,
    "authorizations/<id:id>/approve": access.Approve,
    "authorizations/<id:id>/decline": access.Decline,
    "quotas": access.Quotas,
    "usage": usage.Usage,
    "usage/records": usage.UsageRecords,
    "offers": offers.Offers,
    "instance-types": offers.InstanceTypes,
    "instances": instances.Instances,
    "instances/<id:id>": instances.Instance,
    "events": upkeep.Events,
    "workers": upkeep.Working,
}
V1 = declared.views(BY_HAND)
links.register(V1)
OPEN: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

urlpatterns = [
    *(path(f"v1/{address}", view.as_view()) for address, view in V1.items()),
    path("schema/", Document.as_view(**OPEN), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema", **OPEN), name="docs"),
    re_path(slashes.ADDRESSES, slashes.without),
    re_path("", problems.nothing_here),
]
