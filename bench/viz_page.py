"""How fast large pages are in this machine's Chromium: viz_page.py [NAME …]

Prints, and asserts nothing. Goals: the first view within 1,000 ms of opening the file, 30 frames a second while hovering.
First view: until the tiles of the overview, or the map from the weights themselves, are drawn.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/viz/page"))
import pages  # noqa: E402
from browser import Browser  # noqa: E402

WATCH = """(() => {
  const look = () => {
    const busy = document.querySelector('.busy');
    if (busy && busy.textContent === '' && document.querySelector('.panel canvas')) return requestAnimationFrame(() => (window.shownAt = performance.now()));
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();"""

HOVER = """const [selector, done] = arguments;
const canvas = document.querySelector(selector);
const box = canvas.getBoundingClientRect();
const start = performance.now();
let last = start, frames = 0, longest = 0;
const frame = (now) => {
  frames++;
  longest = Math.max(longest, now - last);
  last = now;
  if (now - start > 3000) return done([frames / ((now - start) / 1000), longest]);
  const turn = (now - start) / 500;
  const x = selector.includes('lines') ? 20 : box.width * (0.35 + 0.2 * Math.cos(turn));
  canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + box.height * (0.5 + 0.3 * Math.sin(turn)), bubbles: true }));
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);"""

EVERY_HEAD = "heads=" + "_".join(map(str, range(12)))
CASES = [
    ("long", "", None),
    ("long", f"tab=heads&min=0&{EVERY_HEAD}", ".lines canvas"),
    ("long", "tab=heads", ".lines canvas"),
    ("long", "tab=map&head=3", ".mapview canvas"),
    ("huge", "", ".mapview canvas"),
    ("huge", "at=1000_1000_4", ".mapview canvas"),
    ("huge", "at=1000_1000_200&scale=head", ".mapview canvas"),
    ("huge", "tab=heads", ".lines canvas"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        browser = Browser()
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        print(f"{'page':6} {'MB':>5} {'first view ms':>14} {'frames/s':>9} {'longest ms':>11}  state")
        for name, fragment, canvas in CASES:
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            if name not in paths:
                paths[name] = pages.PAGES[name]().write(Path(folder) / f"{name}.html")
            browser.open(paths[name], fragment)
            browser.until(lambda: browser.js("return window.shownAt !== undefined"))
            first = browser.js("return window.shownAt")
            rate = browser.driver.execute_async_script(HOVER, canvas) if canvas else (float("nan"), float("nan"))
            size = paths[name].stat().st_size / 1e6
            print(f"{name:6} {size:5.1f} {first:14.0f} {rate[0]:9.1f} {rate[1]:11.0f}  {fragment}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
