"""`python -m chaos.disk`: compile the library; with --optional, say so if that cannot be done here, and go on."""

import sys

from chaos.disk.library import NoCompiler, build

try:
    build()
except NoCompiler as error:
    print(f"tests on a failing disk will be skipped: {error}", file=sys.stderr)
    sys.exit(0 if "--optional" in sys.argv[1:] else 1)
