"""The web process: `gunicorn drydock.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

from drydock.deadline import Bounded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
application = Bounded(get_wsgi_application())
