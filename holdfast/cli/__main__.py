"""`python -m holdfast.cli` is `holdfast`."""

from holdfast.cli.app import main

if __name__ == "__main__":
    main()
