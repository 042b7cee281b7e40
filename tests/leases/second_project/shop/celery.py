"""The shop's Celery app."""

import os

from celery import Celery
from django.conf import settings

from leases.schedule import BEAT

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop", broker=settings.DRYDOCK.broker_url)
app.conf.update(
    task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1, beat_schedule=BEAT,
    broker_transport_options={"global_keyprefix": settings.DRYDOCK.broker_prefix},
)  # fmt: skip
app.set_default()
app.autodiscover_tasks()
