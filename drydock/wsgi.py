"""The web process: `gunicorn drydock.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

from drydock.body_deadline import BodyDeadline

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
application = BodyDeadline(get_wsgi_application())
