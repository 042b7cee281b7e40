"""The Django application of blueprints."""

from django.apps import AppConfig


class BlueprintsConfig(AppConfig):
    """The Django application with the models of blueprints, credentials and remembered errors."""

    name = "blueprints"
    verbose_name = "Blueprints"
