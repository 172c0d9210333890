"""Runs these tests one after another, so that they compile the runtime once."""

import sys
import unittest

if __name__ == "__main__":
    unittest.main(module=None, argv=[sys.argv[0], *(sys.argv[1:] or ("command_test", "jax_test", "rows_test"))])
