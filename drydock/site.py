"""Our admin site: the stock one, with an overview on its first page and a search over everything."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse
from django.urls import path


class Site(AdminSite):
    """The stock admin site, under our name."""

    site_header = "Drydock"
    site_title = "Drydock"
    site_url = None
    index_title = "Overview"
    index_template = "admin/drydock/index.html"

    def get_urls(self) -> list[Any]:
        """With the search and the fleet."""
        return [
            path("search/", self.admin_view(self.search), name="search"),
            path("fleet/", self.admin_view(self.fleet), name="fleet"),
            *super().get_urls(),
        ]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """With why the installation is suspended, for the banner of every page."""
        from leases.engine.core import installation

        context = super().each_context(request)
        return {**context, "suspended": installation.problem() if context["has_permission"] else ""}

    def index(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The overview before the list of models; htmx is given only the overview."""
        from leases.admin import overview

        found = overview.of(request)
        return found if isinstance(found, HttpResponse) else super().index(request, {**found, **(extra_context or {})})

    def fleet(self, request: HttpRequest) -> HttpResponse:
        """Every backend, what it can and costs, and orphans."""
        from leases.admin.fleet import page

        return page(self, request)

    def search(self, request: HttpRequest) -> HttpResponse:
        """Leases, resources and blueprints by number, name, owner or label."""
        from leases.admin.finding import page

        return page(self, request)


class SiteConfig(AdminConfig):
    """The admin, with our site; for INSTALLED_APPS."""

    default_site = "drydock.site.Site"
