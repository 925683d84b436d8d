#!/usr/bin/env python3
"""Counts the single test cases of the last `meson test` in a build tree, from its logs.

Prints each skipped case with its reason, each failed one, and as the last line
`N passed, N failed, N skipped`. Exit status 1 if anything failed or nothing ran.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as xml


def last_line(text):
    lines = [line.strip() for line in (text or '').splitlines() if line.strip()]
    return lines[-1] if lines else 'no reason given'


def main():
    logs = pathlib.Path(sys.argv[1]) / 'meson-logs'
    passed, failed, skipped = 0, [], []
    suites_with_failure = set()
    junit = logs / 'testlog.junit.xml'
    if junit.exists():
        for suite in xml.parse(junit).getroot().iter('testsuite'):
            for case in suite.iter('testcase'):
                name = f"{suite.get('name')}.{case.get('name')}"
                skip = case.find('skipped')
                if case.find('failure') is not None or case.find('error') is not None:
                    failed.append(name)
                    suites_with_failure.add(suite.get('name'))
                elif skip is not None or case.get('result') == 'skipped':
                    # GoogleTest has the reason in the element; meson puts that of a TAP line beside it.
                    reason = skip.get('message') if skip is not None else ''
                    skipped.append((name, last_line(reason or case.findtext('system-out'))))
                else:
                    passed += 1

    # A program may pass every case and still fail: a crash or a sanitizer's report at its end, a
    # time limit. Meson's own verdict is in its log.
    log = logs / 'testlog.json'
    for line in log.read_text().splitlines() if log.exists() else []:
        test = json.loads(line)
        if test['result'] in ('OK', 'SKIP', 'EXPECTEDFAIL'):
            continue
        name = test['name'].split(' / ')[-1].split(':')[-1]
        if not any(f'.{name}' in suite or suite.endswith(name) for suite in suites_with_failure):
            if not any(name in entry for entry in failed):
                failed.append(f"{name} ({test['result'].lower()}, status {test.get('returncode')})")

    for name, reason in skipped:
        print(f'skipped: {name}: {reason}')
    for name in failed:
        print(f'failed: {name}')
    print(f'{passed} passed, {len(failed)} failed, {len(skipped)} skipped')
    return 1 if failed or passed == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
