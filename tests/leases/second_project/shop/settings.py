"""What a project needs to have leases: three apps, DRYDOCK, its keys, and a Celery app that carries out the tasks."""

from drydock import environment, keys

DRYDOCK = environment.load()
DRYDOCK_ENCRYPTION_KEYS = keys.encryption_keys(DRYDOCK)
DRYDOCK_OWNERSHIP_KEY = keys.ownership_key(DRYDOCK)

SECRET_KEY = "the shop's own"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "blueprints", "leases", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DRYDOCK.database.name,
        "USER": DRYDOCK.database.user,
        "PASSWORD": DRYDOCK.database.password,
        "HOST": DRYDOCK.database.host,
        "PORT": DRYDOCK.database.port,
    }
}
