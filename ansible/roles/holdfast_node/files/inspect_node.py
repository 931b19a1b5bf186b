"""Look at the node on this host. Reads only; prints JSON.

    inspect_node.py RELEASE APPLIED ADDRESSES CONFIG

"complete": the release is installed. "applied": the settings of the node's last start, {} if they are not known. "at":
its present addresses, {"monitoring": host:port, "listener": host:port}: those of its last start, or else ADDRESSES,
JSON from the inventory. "alive": a node answers there, ready or not; "ready": it says that it is ready. "config": a
digest of CONFIG, the node's configuration, without the list of nodes; "" if there is none. "joins": it says that the
node joins a cluster that is there.
"""

import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

ANSWERS_WITHIN_S = 5

NODES = r"(?s)peers = \[.*?\n\]\n|initial_nodes = [0-9]+\n|join = true\n"
"""What a configuration says of the other nodes; the same in `vars/main.yml`."""


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


def configured(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def digest(text):
    return text and hashlib.sha256(re.sub(NODES, "", text).strip().encode()).hexdigest()


release, note, addresses, config = sys.argv[1:]
last = applied(note)
at = last.get("at") or json.loads(addresses)
complete = Path(release, "complete").exists()
alive = status(at["monitoring"], "live") != 0
ready = alive and status(at["monitoring"], "ready") == 200
text = configured(config)
found = {"complete": complete, "applied": last, "at": at, "alive": alive, "ready": ready}
print(json.dumps({**found, "config": digest(text), "joins": "\njoin = true\n" in text}))
