"""The operations that users and applications can call, each limited to what its caller may see and change.

The Python API, the shell, the admin and REST call these functions. Each function takes a `Caller`, returns frozen
values from `drydock_client.values`, and raises DrydockErrors with a field and a hint. A change that is not a transition
records an event with the caller's name.
"""
