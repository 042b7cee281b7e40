"""The product's settings with one more address."""

from drydock.settings import *  # noqa: F403

ROOT_URLCONF = "bench.weburls"
