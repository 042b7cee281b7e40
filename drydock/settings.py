"""Django's settings, derived from `drydock.environment`. Importing this module starts nothing and writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import SimpleLazyObject

from drydock import environment, keys
from drydock.core.logging import hide_always, logging_config
from drydock.engines.layout import DATABASE, USER, Config
from drydock.environment import check_broker_url

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    DRYDOCK = environment.load()
except environment.InvalidSettings as error:
    raise ImproperlyConfigured(str(error)) from None

# A Python program that waits for a lease does the work itself where no worker lives.
DRYDOCK_INLINE = DRYDOCK.private_database and DRYDOCK.private_broker if DRYDOCK.inline is None else DRYDOCK.inline

# Keys: read when first needed, and never kept in the database.
SECRET_KEY = SimpleLazyObject(lambda: keys.secret_key(DRYDOCK))
DRYDOCK_ENCRYPTION_KEYS = SimpleLazyObject(lambda: keys.encryption_keys(DRYDOCK))
DRYDOCK_OWNERSHIP_KEY = SimpleLazyObject(lambda: keys.ownership_key(DRYDOCK))
DRYDOCK_METRICS_TOKEN = SimpleLazyObject(lambda: keys.metrics_token(DRYDOCK))

DEBUG = DRYDOCK.debug
# Controllers of servers fetch boot media under the name in this address.
ALLOWED_HOSTS = [*DRYDOCK.allowed_hosts, *([urlsplit(DRYDOCK.boot_url).hostname or ""] if DRYDOCK.boot_url else [])]
CSRF_TRUSTED_ORIGINS = list(DRYDOCK.trusted_origins)
INSTALLED_APPS = [
    "drydock.site.SiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "drydock",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "blueprints",
    "leases",
    "leases.rest",
]
MIDDLEWARE = [
    "drydock.probes.ProbesMiddleware",
    "drydock.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "drydock.middleware.ContentPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "drydock.urls"
WSGI_APPLICATION = "drydock.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates", BASE_DIR / "drydock" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

ENGINES = Config(
    state=DRYDOCK.state,
    account=DRYDOCK.engine_account,
    linger=DRYDOCK.engine_linger_seconds,
    deadline=DRYDOCK.engine_deadline_seconds,
    durable=DRYDOCK.engine_durable,
)


def _database() -> dict[str, Any]:
    given = DRYDOCK.database
    if given is None:
        return {"NAME": DATABASE, "USER": USER, "HOST": str(ENGINES.layout.sockets), "DRYDOCK_ENGINES": ENGINES}
    return {
        "NAME": given.name,
        "USER": given.user,
        "PASSWORD": given.password,
        "HOST": given.host,
        "PORT": given.port,
        "OPTIONS": {"connect_timeout": "10", "application_name": "drydock", **given.options},
    }


DATABASES = {
    "default": {
        "ENGINE": "drydock.engines.postgresql",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        **_database(),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = logging_config(DRYDOCK.log_level, DRYDOCK.log_format)
hide_always(DRYDOCK.secrets)

X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_ENGINE = "drydock.sessions"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = DRYDOCK.https
if DRYDOCK.boot_url.startswith("http://"):
    SECURE_REDIRECT_EXEMPT = [r"^boot/"]  # many controllers follow no redirect, or trust no certificate
SECURE_HSTS_SECONDS = 31_536_000 if DRYDOCK.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = DRYDOCK.https
if DRYDOCK.behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# REST. Views say everything else themselves, so that they are the same in another project.
REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None, "DEFAULT_SCHEMA_CLASS": "leases.rest.schema.Schema"}
SPECTACULAR_SETTINGS = {
    "TITLE": "Drydock",
    "DESCRIPTION": "Lease machines, and the accounts, folders, sites and repositories on them.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [],
    "SERVE_URLCONF": "drydock.urls",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"persistAuthorization": False, "displayRequestDuration": True, "deepLinking": True},
}

# Celery: the database is the truth, messages are hints.
CELERY_BROKER_URL = check_broker_url(DRYDOCK.broker_url) if DRYDOCK.broker_url else ENGINES.layout.broker_url
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": DRYDOCK.broker_prefix,
    "visibility_timeout": DRYDOCK.visibility_timeout_seconds,
    "socket_timeout": 10.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = CELERY_EVENT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_ERRORS_EVEN_IF_IGNORED = False
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_DEFAULT_QUEUE = "claims"
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TIMEZONE = "UTC"
# Without this Celery opens a new database connection for every task.
CELERY_DB_REUSE_MAX = 100
