"""Runs mpi4py's own test suite, and writes each rank's results to a file of its own.

usage: mpi4py_suite.py TESTS_DIR RESULTS_DIR [--only MODULE.PATTERN]... [--skip PATTERN]...

A results file has one line for each test: `start ID`, then `ok ID`, `fail ID` or `skip ID`. A test
that was started and never ended is the one that hung.

A pattern is a part of a test's id, with the shell's wildcards; `$` stands behind the id's end.
"""

import argparse
import fnmatch
import os
import sys
import types
import unittest


class Lines(unittest.TestResult):
    """Writes a line as soon as something is known, since the run may hang."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def line(self, word, test):
        print(word, test.id().replace(" ", "_"), file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.line("start", test)

    def addSuccess(self, test):
        self.line("ok", test)

    def addExpectedFailure(self, test, error):
        self.line("ok", test)

    def addUnexpectedSuccess(self, test):
        self.line("fail", test)

    def addSkip(self, test, reason):
        self.line("skip", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.line("fail", test)
        print(self.failures[-1][1], file=sys.stderr, flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.line("fail", test)
        print(self.errors[-1][1], file=sys.stderr, flush=True)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.line("fail", test)


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def order_own_words(MPI):
    """Completes what mpi4py's locks write into their own window before they go on.

    `Mutex._acquire` and `Condition` of mpi4py/util/sync.py clear a word of their own window, and make their rank known
    to others with the next operation, without waiting for the first. MPI does not order the two: a successor's word may
    be there already, and is cleared. Then all ranks wait for ever. With MPICH, where a rank reaches itself by another
    way than its peers, a loop over a mutex of 4 ranks ends so over `tcp;ofi_rxm`, `udp;ofi_rxd` and erd, and over none
    of them with this.
    """
    from mpi4py.util import sync

    class Win(MPI.Win):
        def Accumulate(self, origin, target_rank, *rest, **named):
            super().Accumulate(origin, target_rank, *rest, **named)
            if target_rank == self.group_rank:
                self.Flush(target_rank)

    sync.MPI = types.SimpleNamespace(**{**vars(MPI), "Win": Win})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests")
    parser.add_argument("results")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--skip", action="append", default=[])
    options = parser.parse_args()
    sys.path.insert(0, options.tests)
    from mpi4py import MPI

    order_own_words(MPI)
    # Only the modules that are wanted: the others take long to import.
    modules = sorted({pattern.split(".")[0] for pattern in options.only}) or ["test_*"]
    suites = [unittest.TestLoader().discover(options.tests, f"{module}.py") for module in modules]
    found = flat(suites)

    def fits(test, patterns):
        return any(fnmatch.fnmatch(f"{test.id()}$", f"*{p}*") for p in patterns)

    chosen = [test for test in found if fits(test, options.only or ["*"])]
    wanted = [test for test in chosen if not fits(test, options.skip)]
    with open(os.path.join(options.results, f"rank.{MPI.COMM_WORLD.rank}"), "w", encoding="utf-8") as out:
        unittest.TestSuite(wanted).run(Lines(out))


if __name__ == "__main__":
    main()
