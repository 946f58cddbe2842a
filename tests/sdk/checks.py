"""Runs and counts checks.

A suite that is a list of functions is a `Suite`: each line of its output is `ok NAME`, `not ok NAME: why` or `skip NAME`, and
the last one has the totals. A suite that is one story counts its checks with `Checks`.
"""

import time
import traceback


class Suite:
    """Checks in order of declaration; one that needs the gateway is skipped if the upstream is driven directly."""

    def __init__(self, title):
        self.title = title
        self.checks = []

    def check(self, gateway_only=False):
        def register(function):
            self.checks.append((function, gateway_only))
            return function

        return register

    def run(self, direct):
        passed = failed = skipped = 0
        for function, gateway_only in self.checks:
            name = function.__name__
            if direct and gateway_only:
                skipped += 1
                print(f"skip {self.title} {name} (needs the gateway)", flush=True)
                continue
            started = time.monotonic()
            try:
                function()
            except Exception as error:
                failed += 1
                print(f"not ok {self.title} {name}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
            else:
                passed += 1
                print(f"ok {self.title} {name} ({time.monotonic() - started:.2f} s)", flush=True)
        print(f"{self.title}: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return failed == 0 and passed > 0


class Checks:
    """Counts what a story finds, prints what fails, and lets the story go on."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED: {what}", flush=True)


def eventually(what, probe, seconds):
    """Waits until `probe()` is true, and fails with `what` if it is not true within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def holds(fact, what):
    if not fact:
        raise AssertionError(what)
