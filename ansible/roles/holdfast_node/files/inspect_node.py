"""Look at the node on this host. Reads only; prints JSON.

    inspect_node.py RELEASE APPLIED ADDRESSES

"complete": the release is installed. "applied": the settings of the node's last start, {} if they are not known. "at":
its present addresses, {"monitoring": host:port, "listener": host:port}: those of its last start, or else ADDRESSES,
JSON from the inventory. "alive": a node answers there, ready or not; "ready": it says that it is ready.
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
    """Return the status code of a health check; 0 if no node answers."""
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
