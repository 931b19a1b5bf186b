"""Package for users: the Python client (`client`), the command line (`cli`), and the AMQP engine below both.

Read `client` first. Nothing here imports the node or the cluster.
"""
