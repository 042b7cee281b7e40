"""Our admin site: Django's, with an overview as its first page and a search over everything."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse
from django.urls import path


class Site(AdminSite):
    """Django's admin site, with our name, overview and search."""

    site_header = "Drydock"
    site_title = "Drydock"
    site_url = None
    index_title = "Overview"
    index_template = "admin/drydock/index.html"

    def get_urls(self) -> list[Any]:
        """Add the search, the racks, the fleet page and the pages of hardware to Django's own URLs."""
        return [
            path("search/", self.admin_view(self.search), name="search"),
            path("racks/", self.admin_view(self.racks), name="racks"),
            path("fleet/", self.admin_view(self.fleet), name="fleet"),
            path("hardware/", self.admin_view(self.hardware), name="hardware"),
            path("hardware/<int:pk>/", self.admin_view(self.hardware), name="hardware_of_host"),
            *super().get_urls(),
        ]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of every page. It has the reason, for a banner, if the installation is suspended."""
        from leases.engine.core import installation

        context = super().each_context(request)
        return {**context, "suspended": installation.problem() if context["has_permission"] else ""}

    def index(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the overview above the list of models. htmx requests receive only the overview."""
        from leases.admin import overview

        found = overview.context_for(request)
        return found if isinstance(found, HttpResponse) else super().index(request, {**found, **(extra_context or {})})

    def fleet(self, request: HttpRequest) -> HttpResponse:
        """Show all backends with their capabilities and costs, and all orphans."""
        from leases.admin.fleet import page

        return page(self, request)

    def racks(self, request: HttpRequest) -> HttpResponse:
        """Show all hosts with their status, in their racks."""
        from leases.admin.hosts import page

        return page(self, request)

    def hardware(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """Show the hardware of all hosts, or of one, as it was last reported."""
        from leases.admin.hardware import host_page, page

        return page(self, request) if pk is None else host_page(self, request, pk)

    def search(self, request: HttpRequest) -> HttpResponse:
        """Search leases, resources and blueprints by number, name, owner or label."""
        from leases.admin.toolkit.search import page

        return page(self, request)


class SiteConfig(AdminConfig):
    """Replaces Django's admin app in INSTALLED_APPS, to use our site."""

    default_site = "drydock.site.Site"
