"""Runs unittest cases and prints TAP, so that meson counts each of them."""
import sys
import traceback
import unittest


class TapResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0

    def _line(self, word, test, comment=''):
        self.count += 1
        name = test.id().split('.', 1)[-1].replace('#', '')
        print(f'{word} {self.count} - {name}{comment}', flush=True)

    def _explain(self, error):
        for line in ''.join(traceback.format_exception(*error)).splitlines():
            print('# ' + line, flush=True)

    def addSuccess(self, test):
        self._line('ok', test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._explain(err)
        self._line('not ok', test)

    def addError(self, test, err):
        super().addError(test, err)
        self._explain(err)
        self._line('not ok', test)

    def addSkip(self, test, reason):
        self._line('ok', test, f' # SKIP {reason}')


def main(module='__main__'):
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])
    print(f'1..{suite.countTestCases()}', flush=True)
    result = TapResult()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
