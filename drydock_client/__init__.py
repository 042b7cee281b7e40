"""A client for a Drydock server, and the code that it shares with the engine: errors, values and the `Client` protocol.

Nothing here imports Django or the engine. The client is `drydock_client.http.HttpClient(url, token)`.
"""
