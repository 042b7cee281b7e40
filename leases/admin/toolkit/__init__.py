"""The building blocks of console pages: base classes, actions, columns, panels, form fields, filters and search.

Nothing in this package depends on a page of `leases.admin`.
"""
