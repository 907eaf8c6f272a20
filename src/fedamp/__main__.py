"""`python -m fedamp` is `fedamp`."""

from fedamp.cli import main

if __name__ == "__main__":
    main()
