"""`python -m streamglm` is the command line."""

import sys

from streamglm.cli import main

if __name__ == "__main__":
    sys.exit(main())
