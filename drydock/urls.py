"""URLs of the web process."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/", include("leases.rest.urls")),
]

handler500 = "drydock.unavailable.failed"
