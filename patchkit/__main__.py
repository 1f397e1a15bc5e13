"""`python -m patchkit`: the same as the command."""

from patchkit.cli.start import main

if __name__ == "__main__":
    main()
