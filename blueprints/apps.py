from django.apps import AppConfig


class BlueprintsConfig(AppConfig):
    """Blueprints, credentials and what is remembered of failed offers."""

    name = "blueprints"
    verbose_name = "Blueprints"
