"""What the tests of the command line share."""

import os

PROMPT = "Tom has 3 apples and buys 4 more. How many apples does he have?"


def environment(**changes):
    return {**os.environ, **changes}
