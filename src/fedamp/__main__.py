"""`python -m fedamp` is `fedamp`."""

from fedamp.cli.main import main

if __name__ == "__main__":
    main()
