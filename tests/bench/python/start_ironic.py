"""Starts Ironic as its own start script does, in the process group of the caller.

Recent releases make a session of their own. Whoever started them could then no longer kill them whole, and an Ironic
whose tests were killed would go on for ever.

For each request to a BMC Ironic hashes its password in 600,000 rounds, which is most of what a bench of small machines would
compute. What was hashed once is remembered.
"""

import functools
import hashlib
import importlib.metadata
import os
import sys


def stay():
    raise PermissionError("stays in the group of its caller")


if __name__ == "__main__":
    os.setsid = stay
    hashlib.pbkdf2_hmac = functools.cache(hashlib.pbkdf2_hmac)
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="ironic")
    sys.argv[0] = "ironic"
    sys.exit(script.load()())
