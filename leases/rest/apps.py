"""The REST API as a separate Django app, so that a project can install the engine without it."""

from django.apps import AppConfig


class RestConfig(AppConfig):
    """The REST API and its tokens."""

    name = "leases.rest"
    label = "rest"
    verbose_name = "REST API"
