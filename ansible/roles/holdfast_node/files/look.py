"""What there is of a node on this host. Reads only; prints JSON.

    look.py RELEASE APPLIED ADDRESSES

"complete": the release is installed. "applied": what the node was last started with, {} when nobody knows. "at": where
it is reached now, {"monitoring": host:port, "listener": host:port}: as it was started, or else ADDRESSES, JSON, which
the inventory says. "alive": a node answers there, be it ready or not; "ready": it says that it is.
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


def status(address, kind):
    """Of the answer; 0: nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/health/{kind}", timeout=ANSWERS_WITHIN_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


release, note, addresses = sys.argv[1:]
last = applied(note)
at = last.get("at") or json.loads(addresses)
complete = Path(release, "complete").exists()
alive = status(at["monitoring"], "live") != 0
ready = alive and status(at["monitoring"], "ready") == 200
print(json.dumps({"complete": complete, "applied": last, "at": at, "alive": alive, "ready": ready}))
