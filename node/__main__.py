"""`python -m node` runs `node.program`, once it is known that what a node needs is installed."""

import gc
import os
import sys

from holdfast.extras import missing

# Before gRPC is loaded, which reads it then. Below errors it repeats what strangers say, by the kilobyte.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def main() -> int:
    if lack := missing("node"):
        print(f"error: {lack}", file=sys.stderr)
        return 2
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the start
    from node import program

    gc.enable()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
