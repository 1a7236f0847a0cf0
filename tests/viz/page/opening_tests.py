"""Every page opens from disk without a network, says nothing to the console, shows its tokens and keeps its state."""

from pages import ODD, SENTENCE


def test_every_page_and_view_opens(session):
    browser = session.browser
    for name in session.names:
        browser.open(session.page(name))
        views = browser.texts("[role=tab]")
        assert len(views) >= 4, (name, views)
        for n in range(len(views)):
            browser.all("[role=tab]")[n].click()
            browser.settle()
            assert browser.texts(".error") == [""], (name, views[n], browser.texts(".error"))
            assert browser.js("return document.querySelector('.panel').textContent.length") > 0
        complaints = browser.complaints()
        assert complaints == [], (name, complaints)


def test_first_view_fits_the_page(session):
    for name, first in {
        "one": "Lines",
        "small": "Overview",
        "window": "Overview",
        "decode": "Map",
        "vit": "Image",
    }.items():
        session.browser.open(session.page(name))
        assert session.browser.texts("[aria-selected=true]") == [first], name


def test_nothing_is_wider_than_a_narrow_screen(session):
    browser = session.browser
    browser.resize(360, 740)
    try:
        for name in ("small", "vit", "neurons", "odd"):
            browser.open(session.page(name))
            for tab in browser.all("[role=tab]"):
                tab.click()
                browser.settle()
                assert browser.js("return document.documentElement.scrollWidth") <= 360, (name, tab.text)
    finally:
        browser.resize(1280, 860)


def test_tokens_are_text_and_never_markup(session):
    browser = session.browser
    browser.open(session.page("odd"), "tab=heads")
    assert browser.js("return document.title") == "Odd tokens </script> & <b>\u2407"
    assert browser.texts("h1 b") == []
    shown = browser.js(
        "return Array.from({ length: attentiveView.layer().keys }, (_, n) => attentiveView.layer().keyTokens.at(n))"
    )
    assert browser.js("return attentiveView.data.tokens[0]") == ODD
    assert shown[ODD.index("</script>")] == "</script>"
    assert (
        shown[ODD.index("\n")] == "⏎" and shown[ODD.index("\x00")] == "\u2400" and shown[ODD.index("\x7f")] == "\u2421"
    )
    assert shown[ODD.index("\u202e")] == "‹202E›" and shown[ODD.index("")] == "‹empty›" and shown[ODD.index(" ")] == "·"
    assert shown[ODD.index("👩‍👩‍👧")] == "👩‍👩‍👧" and shown[ODD.index("\u200d")] == "‹200D›"


def test_state_survives_a_reload(session):
    browser = session.browser
    browser.open(session.page("small"))
    chosen = {
        "tab": "map",
        "layer": 2,
        "head": 5,
        "heads": [1, 5],
        "query": 9,
        "key": 4,
        "min": 0.25,
        "sort": "first",
        "scale": "head",
        "at": [1.5, 2, 2],
        "theme": "dark",
        "blend": 0.3,
        "column": "entropy",
        "down": 1,
        "keys": 0,
    }
    browser.set(**chosen)
    browser.driver.refresh()
    browser.settle()
    for name, value in chosen.items():
        assert browser.state(name) == value, (name, browser.state(name))
    assert browser.texts("[aria-selected=true]") == ["Map"]
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 22)"


def test_an_address_that_asks_for_too_much_is_corrected(session):
    browser = session.browser
    browser.open(
        session.page("small"),
        "tab=nowhere&layer=99&head=77&heads=5_99&query=1000&key=-4&min=9&at=1_2&sort=%22&theme=x&other=1",
    )
    assert browser.texts("[aria-selected=true]") == ["Overview"]
    expected = {
        "layer": 3,
        "head": 7,
        "heads": [5],
        "query": None,
        "key": None,
        "min": 1,
        "at": None,
        "sort": "layer",
        "theme": "auto",
    }
    for name, value in expected.items():
        assert browser.state(name) == value, (name, browser.state(name))
    assert browser.complaints() == []


def test_damaged_weights_are_named(session):
    browser = session.browser
    path = session.folder / "damaged.html"
    text = session.page("one").read_text(encoding="utf-8")
    before, _, after = text.partition('id="w-0-0">')
    path.write_text(before + 'id="w-0-0">' + "AAAA" + after[after.index("<") :], encoding="utf-8")
    browser.open(path)
    browser.until(lambda: browser.texts(".error") != [""], "no error was shown")
    assert browser.texts(".error")[0].startswith("The weights of head 0 cannot be shown: "), browser.texts(".error")
    browser.complaints()


def test_pages_of_another_version_are_refused(session):
    path = session.folder / "version.html"
    path.write_text(
        session.page("one").read_text(encoding="utf-8").replace('{"version": 2,', '{"version": 3,'), encoding="utf-8"
    )
    session.browser.open(path)
    assert "version 3; its scripts read version 2" in session.browser.texts(".error")[0]
    session.browser.complaints()


def test_sentence_is_on_both_sides(session):
    session.browser.open(session.page("small"), "tab=heads&query=5")
    keys = session.browser.texts(".top tbody bdi")
    assert keys and set(keys) <= {token.replace(" ", "·") for token in SENTENCE}, keys


def test_the_overview_shows_the_text(session):
    browser = session.browser
    browser.open(session.page("small"))
    assert browser.texts(".read p") == ["".join(SENTENCE)] and browser.texts(".read span") == SENTENCE
    browser.open(session.page("cross"))
    assert browser.texts(".read h2") == ["Queries", "Keys"]
    assert browser.texts(".read p") == ["".join(SENTENCE[:5]), "Das Tier ging nicht über die Straße."]
    browser.open(session.page("odd"))
    shown = browser.texts(".read span")
    assert shown[ODD.index("\n")] == "⏎\n" and shown[ODD.index(" ")] == " " and shown[ODD.index("</script>")] == "</script>"
    browser.open(session.page("named"))
    gaps = browser.js(
        """const box = (each) => each.getBoundingClientRect(); const all = Array.from(document.querySelectorAll('.read span'));
return all.slice(1).map((each, n) => box(each).left - box(all[n]).right)"""
    )
    assert min(gaps) > 2, "tokens without spaces stand apart"
    browser.open(session.page("vit"), "tab=grid")
    assert browser.all(".read") == [], "patches are no text"


BOXES = "return Array.from(document.querySelectorAll(arguments[0]), (each) => { const b = each.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; })"


def test_no_head_is_cut_on_a_narrow_screen(session):
    browser = session.browser
    try:
        for width in (400, 640, 1000):
            browser.resize(width, 860)
            for name in ("small", "lines", "deep", "named", "cross"):
                for sort in ("layer", "entropy"):
                    browser.open(session.page(name), f"tab=grid&sort={sort}")
                    for selector in (".grid canvas", ".grid button span", ".grid .path"):
                        boxes = browser.js(BOXES, selector)
                        assert all(0 <= left and right <= width for left, right, _, _ in boxes), (width, name, sort, selector)
                    tiles = browser.js(BOXES, ".grid button")
                    labels = browser.js(BOXES, ".grid button span")
                    for tile, label in zip(tiles, labels):
                        assert label[3] <= tile[3] + 1, (width, name, "a label leaves its tile")
                    text = "return Array.from(document.querySelectorAll('.grid button span')).every((each) => each.scrollWidth <= each.clientWidth)"
                    assert browser.js(text), (width, name, sort, "a label is wider than its tile")
                    rows = "const g = document.querySelector('.grid'); return g.scrollWidth - g.clientWidth"
                    assert browser.js(rows) <= 0, (width, name, sort)
    finally:
        browser.resize(1280, 860)


def test_tiles_grow_with_the_window(session):
    browser = session.browser
    sides = []
    try:
        browser.open(session.page("small"), "tab=grid")
        for width in (700, 1000, 1280, 1600):
            browser.resize(width, 860)
            browser.settle()
            box = browser.js(BOXES, ".grid canvas")[0]
            assert abs((box[1] - box[0]) - (box[3] - box[2])) < 0.01, "a tile is square"
            sides.append(box[1] - box[0])
            last = max(right for _, right, _, _ in browser.js(BOXES, ".grid canvas"))
            assert last > 0.9 * width, (width, last, "the row fills the window")
    finally:
        browser.resize(1280, 860)
    assert sides == sorted(set(sides)) and sides[-1] > 150, sides


def test_names_of_layers_break_between_their_parts(session):
    browser = session.browser
    parts = """const lines = [];
for (const path of document.querySelectorAll('.grid .path')) {
  for (const text of path.childNodes) {
    if (text.nodeType !== Node.TEXT_NODE) continue;
    const range = document.createRange(); range.selectNodeContents(text);
    lines.push([text.data, new Set(Array.from(range.getClientRects(), (each) => Math.round(each.top))).size]);
  }
}
return lines"""
    try:
        for width in (400, 1280):
            browser.resize(width, 860)
            browser.open(session.page("named"), "tab=grid")
            found = browser.js(parts)
            assert len(found) == 12 and all(count == 1 for _, count in found), (width, found)
            assert browser.texts(".grid .path")[0] == "model.decoder.blocks.9.cross_attention.inner"
    finally:
        browser.resize(1280, 860)
