"""A local Event Hubs: a cluster that keeps the contract of the service's emulator, and its events.

`entities` reads the emulator's configuration and makes hubs of it, `health_port` answers those that wait for it.
"""
