"""Load drivers for NATS JetStream: its Python client, and its own benchmark program, which is written in Go.

`requirements.lock` names the client; scripts/nats.sh builds the server and the program. Holdfast needs none of them.
"""
