"""Tests of the page in a real browser: page_test.py [--axe] [NAME …]

Without arguments every test but those of accessibility; --axe runs these alone, as they need axe-core. A NAME selects the
tests that contain it. Needs Chromium, its driver, and a Python with selenium and numpy.
"""

import sys
import tempfile
import traceback
from pathlib import Path

import browser as browsers

import interaction_tests
import numbers_tests
import opening_tests
import output_tests
import pages


class Session:
    """One browser and the pages written for it. The two large pages are only used by bench/viz_page.py."""

    def __init__(self, folder):
        self.folder = folder
        self.names = [name for name in pages.PAGES if name not in ("long", "huge")]
        self.known = {}
        self.browser = browsers.Browser()
        self.axe = browsers.axe_source()

    def made(self, name):
        if name not in self.known:
            self.known[name] = pages.PAGES[name]()
        return self.known[name]

    def page(self, name):
        path = self.folder / f"{name}.html"
        return path if path.exists() else self.made(name).write(path)


def chosen_tests(axe, names):
    prefix = "axe_test_" if axe else "test_"
    for module in (opening_tests, numbers_tests, interaction_tests, output_tests):
        for name, test in vars(module).items():
            if name.startswith(prefix) and callable(test) and (not names or any(part in name for part in names)):
                yield name, test


def main():
    axe = "--axe" in sys.argv[1:]
    tests = list(chosen_tests(axe, [name for name in sys.argv[1:] if name != "--axe"]))
    if axe and browsers.axe_source() is None:
        browsers.skip(f"{sys.executable}: neither axe_playwright_python nor axe_core_python, which carry axe-core")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder))
        try:
            for name, test in tests:
                try:
                    test(session)
                    complaints = session.browser.complaints()
                    assert complaints == [], complaints
                    print(f"ok      {name}", flush=True)
                except Exception:
                    failed.append(name)
                    print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
                    session.browser.complaints()
        finally:
            session.browser.close()
    print(f"{len(tests)} tests in the browser, {len(failed)} failed")
    sys.exit(1 if failed or not tests else 0)


if __name__ == "__main__":
    main()
