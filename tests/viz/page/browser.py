"""A headless Chromium without a network, with the operations that the tests need."""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path


def skip(reason):
    print(f"SKIPPED: {reason}; tools/checks/setup_browser.sh installs what is missing on Debian")
    sys.exit(0)


try:
    import numpy  # noqa: F401
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys  # noqa: F401
except ImportError as error:
    skip(f"{sys.executable}: {error}")

PATIENCE = 600  # seconds after which a page that does not become ready is an error; no test depends on being faster


def axe_source():
    """The text of axe.min.js from a PyPI package that contains it, or None."""
    for package in ("axe_playwright_python", "axe_core_python"):
        spec = importlib.util.find_spec(package)
        for found in Path(spec.origin).parent.rglob("axe.min.js") if spec and spec.origin else ():
            return found.read_text(encoding="utf-8")
    return None


class Browser:
    def __init__(self, size=(1280, 860)):
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if not chromium or not driver:
            skip("no chromium" if not chromium else "no chromedriver")
        self.folder = Path(tempfile.mkdtemp(prefix="attentive-page-"))
        options = Options()
        options.binary_location = chromium
        flags = [
            "--headless=new",
            "--disable-dev-shm-usage",
            f"--user-data-dir={self.folder}/profile",
            "--force-device-scale-factor=1",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to run as root otherwise
        for flag in flags:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(PATIENCE)
        self.driver.set_page_load_timeout(PATIENCE)
        self.downloads = self.folder / "downloads"
        self.downloads.mkdir()
        self.command("Network.enable")
        self.command(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self.resize(*size)
        self.scheme("light")

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def resize(self, width, height):
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def scheme(self, name):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path, fragment=""):
        self.driver.get("about:blank")
        self.driver.get(path.resolve().as_uri() + ("#" + fragment if fragment else ""))
        self.settle()

    def js(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def settle(self):
        """Waits until the current weights are read and two frames are drawn."""
        self.until(
            lambda: self.js(
                "return !document.querySelector('.busy') || document.querySelector('.busy').textContent === ''"
            )
        )
        for _ in range(2):
            self.driver.execute_async_script(
                "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 0))"
            )
        self.until(
            lambda: self.js(
                "return !document.querySelector('.busy') || document.querySelector('.busy').textContent === ''"
            )
        )

    def until(self, holds, what="the page did not get there"):
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, what
            time.sleep(0.02)

    def state(self, name):
        return self.js("return attentiveView.state[arguments[0]]", name)

    def set(self, **changes):
        self.js("attentiveView.set(arguments[0])", changes)
        self.settle()

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector):
        return self.js(
            "return Array.from(document.querySelectorAll(arguments[0]), (each) => each.textContent)", selector
        )

    def press(self, *keys):
        """Sends keys to the focused element."""
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()
        self.settle()

    def at(self, selector, x, y, click=False):
        """Moves the pointer to (x, y) from the upper left corner of an element."""
        box = self.js(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y]", selector
        )
        actions = ActionChains(self.driver, duration=0)
        actions.w3c_actions.pointer_action.move_to_location(round(box[0] + x), round(box[1] + y))
        if click:
            actions.click()
        actions.perform()
        self.settle()

    def readout(self):
        """{ "Weight": "0.5 ± 0.001", … } of the cell that is shown."""
        names, values = self.texts(".readout dt"), self.texts(".readout dd")
        return dict(zip(names, values))

    def complaints(self):
        """Errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def downloaded(self):
        """The one file that a click has just saved, removed from the folder."""

        def whole():
            return [each for each in self.downloads.iterdir() if each.suffix != ".crdownload"]

        self.until(lambda: len(whole()) == 1, "nothing was saved")
        (path,) = whole()
        self.until(lambda: path.stat().st_size > 0, "an empty file was saved")
        text = path.read_text(encoding="utf-8")
        path.unlink()
        return path.name, text

    def axe(self, source):
        """The problems that axe-core finds, one per line."""
        self.js(source)
        found = self.driver.execute_async_script("axe.run(document).then(arguments[0])")
        return [
            f"{each['id']}: {json.dumps([node['html'][:120] for node in each['nodes'][:3]])}"
            for each in found["violations"]
        ]


def number(text):
    """The number with which a text of the page begins; its minus sign is U+2212."""
    return float(text.replace("\u2212", "-").split(" ")[0])
