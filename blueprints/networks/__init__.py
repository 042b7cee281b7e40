"""The networks that the ports of machines are attached to, switched by drivers that all kinds share.

A driver (entry point group `drydock.networks`) attaches the port of a switch to a network, detaches it, and reads back
which networks it is in. `contract` says what a driver is, `registry` finds it by name, and `config` has what a
blueprint says about its networks.
"""
