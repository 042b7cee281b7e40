"""URLs of the web process."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from leases import boot_media

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/", include("leases.rest.urls")),
    re_path(boot_media.PATH, boot_media.medium),
]

handler500 = "drydock.unavailable.failed"
