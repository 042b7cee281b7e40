"""A client of a Drydock server, and what it has in common with the engine: errors, values, the `Client` protocol.

Nothing here imports Django or the engine. `drydock_client.http.HttpClient(url, token)` is the client.
"""
