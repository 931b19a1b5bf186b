"""What there is of a node on this host. Reads only; prints JSON.

    look.py RELEASE APPLIED ADDRESSES

"complete": the release is installed. "applied": what the node was last started with, {} when nobody knows. "at": where
it is reached now, {"monitoring": host:port, "listener": host:port}: as it was started, or else ADDRESSES, JSON, which
the inventory says. "alive": a node answers there, be it ready or not.
"""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

ANSWERS_WITHIN_S = 5


def applied(path):
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        return {}


def alive(address):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"http://{address}/health/live", timeout=ANSWERS_WITHIN_S).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


release, note, addresses = sys.argv[1:]
last = applied(note)
at = last.get("at") or json.loads(addresses)
complete = Path(release, "complete").exists()
print(json.dumps({"complete": complete, "applied": last, "at": at, "alive": alive(at["monitoring"])}))
