"""Exported drawings, print, and what axe-core finds."""

import xml.etree.ElementTree as tree

from pages import SENTENCE

SVG = "{http://www.w3.org/2000/svg}"
# A page for each view.
EACH_VIEW = (("small", "grid"), ("small", "map"), ("small", "heads"), ("vit", "image"), ("neurons", "neurons"), ("small", "numbers"))


def exported(browser):
    browser.find(".tools button").click()
    name, text = browser.downloaded()
    root = tree.fromstring(text)
    assert root.tag == SVG + "svg" and float(root.get("width")) > 0 and float(root.get("height")) > 0
    return name, root


def labels(root):
    return ["".join(each.itertext()) for each in root.iter(SVG + "text")]


def test_every_view_is_exported_as_xml(session):
    browser = session.browser
    for page, view in (
        *EACH_VIEW,
        ("odd", "heads"),
        ("odd", "map"),
        ("rtl", "heads"),
        ("one", "map"),
        ("decode", "map"),
        ("decode", "heads"),
    ):
        browser.open(session.page(page), f"tab={view}")
        name, root = exported(browser)
        assert name.endswith(".svg") and view in name, name
        assert labels(root), (page, view)
        complaints = browser.complaints()
        assert complaints == [], (page, view, complaints)


def test_exported_map_and_lines_hold_the_tokens(session):
    browser = session.browser
    words = {token.replace(" ", "·") for token in SENTENCE}
    for view in ("map", "heads"):
        browser.open(session.page("small"), f"tab={view}&query=5")
        _, root = exported(browser)
        once = [word for word in words if labels(root).count(word) < 2]
        assert once == [], (view, "not on both sides", once)
    paths = [each for each in root.iter(SVG + "path") if each.get("stroke-opacity")]
    assert len(paths) == int(browser.texts(".lines .note")[0].split(" ")[0])
    browser.open(session.page("odd"), "tab=heads")
    _, root = exported(browser)
    assert {"</script>", "&amp;", "]]>", "👩‍👩‍👧", "␀"} <= set(labels(root)), labels(root)


def test_exported_overview_holds_the_text(session):
    browser = session.browser
    browser.open(session.page("small"))
    _, root = exported(browser)
    assert " ".join(labels(root)[:2]).startswith("".join(SENTENCE)[:40]), labels(root)[:3]
    assert {"trf_blocks.0.att", "trf_blocks.3.att"} <= set(labels(root))


def test_exported_map_holds_the_weights(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=map&layer=1&head=3")
    _, root = exported(browser)
    image = next(root.iter(SVG + "image"))
    pixels = browser.driver.execute_async_script(
        """const image = new Image();
image.onload = () => { const c = document.createElement('canvas'); [c.width, c.height] = [image.width, image.height];
  const pen = c.getContext('2d'); pen.drawImage(image, 0, 0);
  arguments[1]([c.width, c.height, Array.from(pen.getImageData(0, 0, c.width, c.height).data).filter((_, n) => n % 4 === 3)]); };
image.src = arguments[0]""",
        image.get("href"),
    )
    assert pixels[:2] == [14, 14]
    keep = session.made("small").heads[1][3].keep
    assert [alpha > 0 for alpha in pixels[2]] == keep.ravel().tolist(), "hidden cells are see-through, the others not"


def test_print_gets_a_light_drawing(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=heads&theme=dark&query=5")
    browser.js("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.js("return document.querySelector('.printed svg rect').getAttribute('fill')") == "#ffffff"
    assert set(SENTENCE[:1]) <= set(browser.texts(".printed svg text"))
    browser.command("Emulation.setEmulatedMedia", media="print")
    visible = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert (
        browser.js(visible, ".printed") == "block"
        and browser.js(visible, ".panel") == "none"
        and browser.js(visible, ".controls") == "none"
    )
    browser.command("Emulation.setEmulatedMedia", media="")
    browser.js("window.dispatchEvent(new Event('afterprint'))")
    assert browser.all(".printed") == []


def axe_finds_nothing(session, scheme):
    browser = session.browser
    browser.scheme(scheme)
    problems = []
    try:
        for page, view in (
            *EACH_VIEW,
            ("rtl", "heads"),
            ("holes", "map"),
        ):
            browser.open(session.page(page), f"tab={view}&query=3&key=2")
            problems += [f"{page} {view}: {line}" for line in browser.axe(session.axe)]
        browser.find("[aria-label=Keys]").click()
        problems += [f"keys: {line}" for line in browser.axe(session.axe)]
    finally:
        browser.scheme("light")
    assert problems == [], "\n".join(problems)


def axe_test_in_light(session):
    axe_finds_nothing(session, "light")


def axe_test_in_dark(session):
    axe_finds_nothing(session, "dark")
