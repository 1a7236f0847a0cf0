#!/bin/sh
# Installs what the tests of the page in tests/viz/page need: Debian's Chromium with its driver, and in build/browser a Python
# with selenium, numpy and axe-core. Configure after it, so that the tests find that Python. Does nothing if all of it is there.
set -eu
cd "$(dirname "$0")/../.."

tools/setup.sh chromium chromium-driver
python=build/browser/bin/python3
if [ -x "$python" ] && "$python" -c "import selenium, numpy, importlib.util as u; assert u.find_spec('axe_playwright_python')" 2>/dev/null; then
  exit 0
fi
echo "setup: a Python with selenium in build/browser"
python3 -m venv --clear build/browser
"$python" -m pip install --quiet --disable-pip-version-check selenium numpy
# Only for the axe.min.js that it carries: Playwright itself is not needed.
"$python" -m pip install --quiet --disable-pip-version-check --no-deps axe-playwright-python
