"""The client that speaks HTTP: `HttpClient(url, token)`."""

from drydock_client.http.client import HttpClient

__all__ = ["HttpClient"]
