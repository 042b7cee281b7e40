"""Every address of the admin, made from its URL patterns, so that a new one is met by every test that walks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver

from leases.models import ReportedHardware

WORDS = "zebra"
"""Stands in every text that another owner's rows have."""
SOME = "zebr"
"""Finds them, without being all of it: what was asked for may be said again."""


def patterns(found: Any = None, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    """(pattern, what it leads to), of everything below `/admin/`."""
    for one in get_resolver().url_patterns if found is None else found:
        at = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from patterns(one.url_patterns, at)
        elif at.startswith("admin/"):
            yield at, one


def every(*, asking: bool = False) -> list[str]:
    """Every address of the admin, filled in with a row, an act, or nothing. `asking`: lists also with what may be
    asked of them."""
    found = [f"/{at}" for pattern, _ in patterns() for at in _filled(pattern)]
    lists = [at for at in found if at.count("/") == 4 and "?" not in at]
    return found + [at + asked for at in lists if asking for asked in _ASKED]


_ASKED = (
    f"?q={SOME}", f"?q={SOME}&o=1", "?o=-2", "?state__exact=active", f"?name__startswith={SOME}", "?_popup=1",
    "?_to_field=id", "?p=1", "?all=",
)  # fmt: skip


def _filled(pattern: str) -> Iterator[str]:
    """The addresses of one pattern. Fails for one that nobody has said how to fill in."""
    labels = {model._meta.app_label for model in admin.site._registry}
    pieces = pattern.split("/")
    if "(?P<url>.*)$" in pattern:
        yield "admin/nowhere/"
    elif "(?P<app_label>" in pattern:
        yield from (f"admin/{label}/" for label in sorted(labels))
    elif "content_type_id" in pattern:
        yield from (
            f"admin/r/{ContentType.objects.get_for_model(model).pk}/{row.pk}/"
            for model in admin.site._registry if (row := model.objects.order_by("pk").first())
        )  # fmt: skip
    elif len(pieces) > 2 and pieces[1] in labels:
        yield from _of_model(pattern, apps.get_model(pieces[1], pieces[2]))
    elif pattern == "admin/hardware/<int:pk>/":
        yield from (f"admin/hardware/{row.pk}/" for row in ReportedHardware.objects.all()[:1])
    elif pattern == "admin/autocomplete/":
        fields = (("authorization", "user"), ("authorization", "blueprint"), ("quota", "user"))
        yield from (
            f"{pattern}?app_label=leases&model_name={model}&field_name={field}&term={SOME}" for model, field in fields
        )
    elif "<" in pattern:
        raise AssertionError(f"Say in {__name__} what fills in {pattern}.")
    else:
        yield f"{pattern}?q={SOME}" if "search" in pattern else pattern


def _of_model(pattern: str, model: Any) -> Iterator[str]:
    row = model.objects.order_by("pk").first()
    assert row is not None, f"No {model.__name__} to try {pattern} with."
    for field in ("<path:object_id>", "<int:pk>", "<id>"):
        pattern = pattern.replace(field, str(row.pk))
    if "<slug:name>" in pattern:
        yield from (
            f"{pattern.replace('<slug:name>', act.name)}?ids={row.pk}" for act in admin.site._registry[model].acts
        )
    else:
        assert "<" not in pattern, f"Say in {__name__} what fills in {pattern}."
        yield pattern


def everything() -> dict[str, str]:
    """Each table of the database as a digest of its rows. Sessions come and go with whoever looks."""
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if name != "django_session"]
        found = {}
        for name in names:
            # What is asked of it is all ours.
            cursor.execute(f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM \"{name}\" t")
            found[name] = cursor.fetchone()[0]
    return found
