"""The addresses of the API: `path("api/", include("leases.rest.urls"))`."""

from __future__ import annotations

from typing import Any

from django.urls import path, re_path, register_converter
from django.urls.converters import StringConverter
from drf_spectacular.views import SpectacularSwaggerSplitView

from leases.rest import links, problems, slashes
from leases.rest.document import Document
from leases.rest.views import (
    access,
    blueprints,
    files,
    fleet,
    instances,
    leases,
    machines,
    offers,
    orphans,
    resources,
    serving,
    tokens,
    upkeep,
    usage,
    users,
    work,
)


class IdConverter:
    """Ids as the database has them; anything else is nothing's address."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Raises ValueError for a number that no row can have."""
        if (number := int(value)) >= 1 << 63:
            raise ValueError("beyond every id")
        return number

    def to_url(self, value: int) -> str:
        """The number."""
        return str(value)


class WordConverter(StringConverter):
    """Names of blueprints, kinds and credentials."""

    regex = "[A-Za-z0-9._-]{1,63}"


class UserConverter(StringConverter):
    """Names of users, as Django takes them."""

    regex = r"[\w.@+-]{1,150}"


register_converter(IdConverter, "id")
register_converter(UserConverter, "user")
register_converter(WordConverter, "word")

V1 = {
    "me": access.Myself,
    "tokens": tokens.Tokens,
    "tokens/<id:id>": tokens.Token,
    "leases": leases.Leases,
    "leases/<id:id>": leases.Lease,
    "leases/<id:id>/release": leases.Release,
    "leases/<id:id>/extend": leases.Extend,
    "leases/<id:id>/heartbeat": leases.Heartbeat,
    "leases/<id:id>/hold": leases.Hold,
    "leases/<id:id>/unhold": leases.Unhold,
    "leases/<id:id>/retry": leases.Retry,
    "leases/<id:id>/resolve": leases.Resolve,
    "leases/<id:id>/private_key": leases.Key,
    "leases/<id:id>/access": machines.Access,
    "leases/<id:id>/machine": machines.OfLease,
    "leases/<id:id>/console": machines.ConsoleOfLease,
    **{f"leases/<id:id>/{act}": view for act, view in machines.OF_LEASES.items()},
    "leases/<id:id>/events": leases.Events,
    "leases/<id:id>/jobs": work.LeaseJobs,
    "leases/<id:id>/file": files.File,
    "leases/<id:id>/files": files.Files,
    "leases/<id:id>/tree": files.Tree,
    "leases/<id:id>/page": serving.Page,
    "leases/<id:id>/pages": serving.Pages,
    "leases/<id:id>/server": serving.Server,
    "leases/<id:id>/server/log": serving.Log,
    "explain": leases.Explain,
    "groups": leases.Groups,
    "groups/<id:id>": leases.Group,
    "jobs": work.Jobs,
    "jobs/<id:id>": work.Job,
    "jobs/<id:id>/output": work.Output,
    "jobs/<id:id>/cancel": work.Cancel,
    "resources": resources.Resources,
    "resources/<id:id>": resources.Resource,
    "resources/<id:id>/resolve": resources.Resolve,
    "resources/<id:id>/machine": machines.OfResource,
    "resources/<id:id>/console": machines.ConsoleOfResource,
    **{f"resources/<id:id>/{act}": view for act, view in machines.OF_RESOURCES.items()},
    **{f"resources/<id:id>/{act}": view for act, view in resources.ACTS.items()},
    "blueprints": blueprints.Blueprints,
    "blueprints/<word:name>": blueprints.Blueprint,
    "blueprints/<word:name>/resources": blueprints.Registered,
    "blueprints/<word:name>/host-keys": blueprints.HostKeys,
    **{f"blueprints/<word:name>/{act}": view for act, view in blueprints.ACTS.items()},
    "kinds": blueprints.Kinds,
    "kinds/<word:name>": blueprints.Kind,
    "authorizations": access.Authorizations,
    "authorizations/decide": access.Grants,
    "authorizations/<id:id>": access.Authorization,
    "authorizations/<id:id>/approve": access.Approve,
    "authorizations/<id:id>/decline": access.Decline,
    "quotas": access.Quotas,
    "users": users.Users,
    "users/<user:user>": users.User,
    "users/<user:user>/password": users.Password,
    "users/<user:user>/enable": users.Enable,
    "users/<user:user>/disable": users.Disable,
    "users/<user:user>/groups": users.Groups,
    "budgets": usage.Budgets,
    "usage": usage.Usage,
    "usage/records": usage.UsageRecords,
    "credentials": access.Credentials,
    "credentials/<word:name>": access.Credential,
    "credentials/<word:name>/read": access.Read,
    "offers": offers.Offers,
    "locations": offers.Locations,
    "instance-types": offers.InstanceTypes,
    "instances": instances.Instances,
    "instances/<id:id>": instances.Instance,
    **{f"instances/<id:id>/{act}": view for act, view in instances.ACTS.items()},
    "fleet": fleet.Fleet,
    "orphans": orphans.Orphans,
    "orphans/<id:id>/destroy": orphans.Destroy,
    "orphans/<id:id>/adopt": orphans.Adopt,
    "events": upkeep.Events,
    "attention": upkeep.NeedsAttention,
    "workers": upkeep.Working,
    "reclaim": upkeep.Reclaim,
    "sweep": upkeep.Sweep,
    "errors/clear": upkeep.ClearErrors,
}
links.register(V1)
OPEN: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

urlpatterns = [
    *(path(f"v1/{address}", view.as_view()) for address, view in V1.items()),
    path("schema/", Document.as_view(**OPEN), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema", **OPEN), name="docs"),
    re_path(slashes.ADDRESSES, slashes.without),
    re_path("", problems.nothing_here),
]
