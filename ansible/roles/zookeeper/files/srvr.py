"""Print the mode of the ZooKeeper server at ADDRESS PORT; exit status 1 while it does not serve."""

import socket
import sys

try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
except OSError as error:
    sys.exit(f"no answer: {error}")
mode = [line for line in answer.decode(errors="replace").splitlines() if line.startswith("Mode:")]
print(mode[0] if mode else answer.decode(errors="replace"))
sys.exit(0 if mode else 1)
