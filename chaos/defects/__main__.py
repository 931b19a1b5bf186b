"""Command `python -m chaos.defects NAME --config FILE`: runs a node with that fault until SIGTERM."""

import sys

from chaos.defects.catalogue import DEFECTS


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in DEFECTS:
        print(f"error: name one of {', '.join(DEFECTS)}", file=sys.stderr)
        return 2
    name = sys.argv.pop(1)
    from node import program

    print(f"this node has a deliberate fault: {name}", file=sys.stderr)
    DEFECTS[name].apply()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
