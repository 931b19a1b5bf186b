"""`python -m node` runs `node.program`, once it is known that what a node needs is installed."""

import sys

from holdfast.extras import missing


def main() -> int:
    if lack := missing("node"):
        print(f"error: {lack}", file=sys.stderr)
        return 2
    from node import program

    return program.main()


if __name__ == "__main__":
    sys.exit(main())
