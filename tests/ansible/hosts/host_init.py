"""What runs first on a test host: services that belong to it, then sshd, until the host is killed.

    host_init.py NAME

It is process 1 of its own process namespace, in a root of its own; whatever loses its parent is its child.
"""

import os
import subprocess
import sys
from pathlib import Path

SUPERVISORD = Path("/opt/holdfast-supervisor/current/bin/supervisord")

subprocess.run(["hostname", sys.argv[1]], check=True)
Path("/run/sshd").mkdir(exist_ok=True)
if SUPERVISORD.exists():
    subprocess.run([str(SUPERVISORD), "-c", "/etc/holdfast/supervisord.conf"], check=False)
subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config.test"])
while True:
    os.wait()
