"""Counts checks."""


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED: {what}")
