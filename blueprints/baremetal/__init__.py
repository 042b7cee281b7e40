"""The kind `bare_metal`: servers that are controlled by their BMC, with an operating system that is already installed.

The BMC is reached by a driver of `blueprints.bmc`, and the operating system over SSH, as for any registered host.
"""
