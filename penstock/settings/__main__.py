"""`python -m penstock.settings` prints the configuration reference."""

import sys

from penstock.settings.reference import write_reference

sys.stdout.write(write_reference())
