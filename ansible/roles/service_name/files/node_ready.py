"""Tell by the exit status whether the node of this host is ready: `node_ready.py HOST PORT`."""

import http.client
import sys

ASKED_S = 2.0


def main() -> int:
    host, port = sys.argv[1:]
    connection = http.client.HTTPConnection(host, int(port), timeout=ASKED_S)
    try:
        connection.request("GET", "/health/ready")
        return 0 if connection.getresponse().status == http.client.OK else 1
    except OSError:
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
