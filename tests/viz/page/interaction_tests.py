"""Pointer and keyboard work as the page says."""

import numpy

from browser import Keys


def map_place(browser, query, key):
    """The middle of a cell, from the corner of the map's canvas."""
    return browser.js(
        """const f = attentiveView.mapFrameShown();
return [f.left + (arguments[1] + 0.5 - f.x) * f.sx, f.top + (arguments[0] + 0.5 - f.y) * f.sy]""",
        query,
        key,
    )


def test_pointing_at_the_map(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=map&layer=1&head=3")
    browser.at(".mapview canvas", *map_place(browser, 9, 4))
    shown = browser.readout()
    assert shown["Query"].startswith("9 ") and shown["Key"].startswith("4 "), shown
    assert browser.state("query") is None
    browser.until(lambda: browser.texts("aside h2") == ["Query 9 ·it"], "the tables follow a pointer that rests")
    browser.at(".mapview canvas", *map_place(browser, 9, 4), click=True)
    assert (browser.state("query"), browser.state("key")) == (9, 4)
    browser.at(".mapview canvas", 2, 2)
    assert browser.readout()["Key"].startswith("4 "), "the chosen cell stays when the pointer leaves"
    browser.at(".mapview canvas", *map_place(browser, 9, 4), click=True)
    assert browser.state("query") is None, "a second click lets go"


def test_keys_on_the_map(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=map&layer=1&head=3&query=5&key=3")
    browser.js("document.querySelector('.mapview canvas').focus()")
    for keys, expected in (
        (Keys.ARROW_DOWN, (6, 3)),
        (Keys.ARROW_LEFT, (6, 2)),
        (Keys.END, (6, 13)),
        (Keys.PAGE_DOWN, (13, 13)),
        (Keys.ARROW_RIGHT, (13, 13)),
        (Keys.HOME, (13, 0)),
        (Keys.ARROW_UP, (12, 0)),
    ):
        browser.press(keys)
        assert (browser.state("query"), browser.state("key")) == expected, (keys, expected)
    assert browser.texts(".unseen[role=status]")[0].startswith(
        "query 12 · ·tired, key 0 · The: weight "
    ), browser.texts(".unseen[role=status]")
    browser.press("+")
    zoom = browser.state("at")[2]
    assert zoom > 1
    browser.press("-")
    assert browser.state("at") is None
    browser.press("+", "0")
    assert browser.state("at") is None
    browser.press(Keys.ENTER)
    assert (
        browser.texts("[aria-selected=true]") == ["Lines"]
        and browser.state("heads") == [3]
        and browser.state("query") == 12
    )
    browser.press(Keys.ESCAPE)
    assert browser.state("query") is None


def test_zoom_keeps_the_cell_under_the_pointer(session):
    browser = session.browser
    browser.open(session.page("window"), "tab=map")
    x, y = map_place(browser, 70, 40)
    under = "return attentiveView.cellAt(attentiveView.mapFrameShown(), arguments[0], arguments[1])"
    assert browser.js(under, x, y) == {"query": 70, "key": 40}
    wheel = """const box = arguments[0].getBoundingClientRect();
arguments[0].dispatchEvent(new WheelEvent('wheel', { deltaY: -600, clientX: box.x + arguments[1], clientY: box.y + arguments[2], cancelable: true }))"""
    browser.js(wheel, browser.find(".mapview canvas"), x, y)
    browser.settle()
    assert browser.state("at")[2] > 2
    assert browser.js(under, x, y) == {"query": 70, "key": 40}


def test_dragging_moves_the_map(session):
    browser = session.browser
    browser.open(session.page("window"), "tab=map&at=20_20_4")
    place = "const { x, y, sx } = attentiveView.mapFrameShown(); return { x, y, sx }"
    before = browser.js(place)
    drag = """const [stage, dx] = arguments; const box = stage.getBoundingClientRect(); stage.setPointerCapture = () => {};
const send = (type, x) => stage.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: box.x + x, clientY: box.y + 300 }));
send('pointerdown', 300); send('pointermove', 300 + dx); send('pointerup', 300 + dx);"""
    browser.js(drag, browser.find(".mapview canvas"), -100)
    browser.settle()
    after = browser.js(place)
    assert abs(after["x"] - before["x"] - 100 / before["sx"]) < 0.01 and after["y"] == before["y"], (
        before["x"],
        after["x"],
    )
    assert browser.state("query") is None, "a drag chooses no cell"


def lines_drawn(browser):
    return int(browser.texts(".lines .note")[0].split(" ")[0].replace(",", ""))


def test_lines_of_a_token(session):
    browser, page = session.browser, session.made("small")
    head = page.heads[1][3]
    browser.open(session.page("small"), "tab=heads&layer=1&head=3&heads=3&min=0.05")
    half = head.row_max[:, None] / 510
    certain, possible = (head.weights - half >= 0.05).sum(), (head.weights + half >= 0.05).sum()
    assert certain <= lines_drawn(browser) <= possible
    browser.at(".lines canvas", 20, 30 + 24 * 9 + 12)
    shown = browser.readout()
    assert shown["Query"].startswith("9 ") and lines_drawn(browser) < certain, shown
    browser.at(".lines canvas", 20, 30 + 24 * 9 + 12, click=True)
    assert browser.state("query") == 9
    width = browser.js("return document.querySelector('.lines canvas').clientWidth")
    browser.at(".lines canvas", width - 15, 30 + 24 * 4 + 12)
    shown = browser.readout()
    assert shown["Query"].startswith("9 ") and shown["Key"].startswith("4 ") and "Weight" in shown, shown
    browser.set(min=0.5)
    assert lines_drawn(browser) <= 1
    browser.set(query=None, key=2, min=0)
    browser.at(".lines canvas", width / 2, 5)
    quantised = head.quantised()[0][:, 2]
    assert lines_drawn(browser) == (quantised > 0).sum()


def test_several_heads_at_once(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=heads")
    browser.all(".chips button")[4].click()
    browser.settle()
    assert browser.state("heads") == [0, 4]
    assert browser.texts(".top caption") == ["Top keys of head 0", "Top keys of head 4"]
    colours = browser.js(
        "return Array.from(document.querySelectorAll('.top caption i'), (each) => getComputedStyle(each).backgroundColor)"
    )
    assert len(set(colours)) == 2
    browser.find(".heads .plain").click()
    browser.settle()
    assert browser.state("heads") == list(range(8))
    browser.all(".chips button")[0].click()
    browser.settle()
    assert browser.state("heads") == list(range(1, 8))
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    assert browser.state("heads") == [2, 3, 4, 5, 6, 7]


def test_keys_on_the_lines(session):
    browser = session.browser
    browser.open(session.page("small"), "tab=heads")
    browser.js("document.querySelector('.lines canvas').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.state("query") == 1
    browser.press(Keys.ARROW_RIGHT, Keys.END)
    assert (browser.state("query"), browser.state("key")) == (1, 13)
    assert browser.texts(".unseen[role=status]")[0].endswith("key 13 · .: hidden")
    browser.press(Keys.ARROW_LEFT, Keys.HOME)
    assert browser.state("query") == 0


def test_long_texts_scroll_to_the_token(session):
    browser = session.browser
    browser.open(session.page("window"), "tab=heads")
    browser.js("document.querySelector('.lines canvas').focus()")
    browser.press(Keys.END)
    assert browser.state("query") == 95
    assert browser.js("return document.querySelector('.scroller').scrollTop") > 1000


def test_overview_opens_maps(session):
    browser = session.browser
    browser.open(session.page("small"))
    tiles = browser.all(".grid button")
    assert len(tiles) == 32
    tiles[8 + 3].click()
    browser.settle()
    assert (browser.state("layer"), browser.state("head")) == (1, 3) and browser.texts("[aria-selected=true]") == [
        "Map"
    ]
    browser.open(session.page("small"))
    browser.js("document.querySelector('.grid button').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert "trf_blocks.2.att, head 1" in browser.driver.switch_to.active_element.get_attribute("aria-label")
    assert browser.js("return document.querySelectorAll('.grid button[tabindex=\"0\"]').length") == 1
    browser.press(Keys.ENTER)
    assert (browser.state("layer"), browser.state("head"), browser.state("tab")) == (2, 1, "map")
    assert browser.js("return document.activeElement.tagName") == "CANVAS"


def test_overview_sorts(session):
    browser, page = session.browser, session.made("small")
    heads = [(view, head.number, head) for view, row in enumerate(page.heads) for head in row]
    for name in ("entropy", "distance", "previous", "first"):
        browser.open(session.page("small"), f"sort={name}")
        expected = [f"{view}·{n}" for view, n, head in sorted(heads, key=lambda each: -each[2].statistics[name])]
        assert browser.texts(".grid b") == expected, name


def test_table_sorts_and_copies(session):
    browser, page = session.browser, session.made("small")
    browser.open(session.page("small"), "tab=numbers")
    browser.all(".statistics thead button")[2].click()
    browser.settle()
    shown = [float(text) for text in browser.texts(".statistics tbody td:nth-child(3)")]
    assert shown == sorted(shown, reverse=True) and len(shown) == 32
    assert browser.all(".statistics thead th")[2].get_attribute("aria-sort") == "descending"
    browser.all(".statistics thead button")[2].click()
    browser.settle()
    assert [float(text) for text in browser.texts(".statistics tbody td:nth-child(3)")] == shown[::-1]
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    for way in ("clipboard", "selection"):
        if way == "selection":
            browser.js("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
        browser.js(
            "window.copied = null; document.addEventListener('copy', () => (window.copied = document.activeElement.value || ''))"
        )
        browser.all(".controls button")[-1].click()
        browser.until(lambda: browser.texts(".notice") == ["table copied"], f"no word of a copy by {way}")
        if way == "clipboard":
            text = browser.driver.execute_async_script(
                "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"
            )
        else:
            text = browser.js("return window.copied")
        lines = [line.split("\t") for line in text.splitlines()]
        assert lines[0][:3] == ["Layer", "Head", "Entropy"] and len(lines) == 33, (way, text[:200])
        entropies = [float(line[2]) for line in lines[1:]]
        assert entropies == sorted(head.statistics["entropy"] for row in page.heads for head in row), way
        browser.js("document.querySelector('.notice').textContent = ''")


def test_keys_of_the_page(session):
    browser = session.browser
    browser.open(session.page("small"))
    for key, name, value in (
        ("2", "tab", "map"),
        ("]", "layer", 1),
        (".", "head", 1),
        (",", "head", 0),
        ("[", "layer", 0),
        ("t", "theme", "light"),
        ("t", "theme", "dark"),
        ("3", "tab", "heads"),
        ("4", "tab", "numbers"),
    ):
        browser.press(key)
        assert browser.state(name) == value, (key, name, browser.state(name))
    browser.press("?")
    assert browser.js("return document.querySelector('dialog').open")
    browser.find("dialog input").click()
    browser.press(Keys.ESCAPE)
    assert not browser.js("return document.querySelector('dialog').open")
    browser.press("1")
    assert browser.state("tab") == "numbers", "single keys are off"
    browser.find("#tab-grid").click()
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    assert browser.state("tab") == "map"


def test_patches_and_features(session):
    browser = session.browser
    browser.open(session.page("vit"))
    browser.js("document.querySelector('.imageview canvas').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert browser.state("query") == 1 + 8 + 1
    assert browser.texts(".imageview .note")[0].startswith("Patch 1,1 gives ")
    browser.all(".strip button")[2].click()
    browser.settle()
    assert browser.state("head") == 2
    browser.open(session.page("neurons"), "tab=neurons")
    browser.js("document.querySelector('.neurons canvas').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "Feature 1: " in browser.texts(".sum")[0]


def test_hover_on_patches(session):
    browser = session.browser
    browser.open(session.page("vit"), "tab=image")
    box = browser.js(
        """const f = document.querySelector('.imageview canvas').getBoundingClientRect(); return [f.width, f.height]"""
    )
    browser.at(".imageview canvas", box[0] / 2 + 5, box[1] / 2 + 5)
    assert browser.readout()["Key"].startswith("37 "), browser.readout()
    browser.at(".imageview canvas", box[0] / 2 + 5, box[1] / 2 + 5, click=True)
    assert browser.state("query") == 37


def strongest(page, heads, per, least):
    """{(head, query, key)} of the weights that the page shows: the strongest of each query over the heads."""
    shown = numpy.stack([page.heads[0][n].quantised()[1] for n in heads])
    wanted = set()
    for query in range(shown.shape[1]):
        weights = shown[:, query]
        order = numpy.argsort(-weights, axis=None, kind="stable")[:per]
        for place in order:
            n, key = numpy.unravel_index(place, weights.shape)
            if weights[n, key] >= least:
                wanted.add((heads[n], query, int(key)))
    return wanted


def test_lines_of_all_heads_are_the_strongest_of_each_query(session):
    browser, page = session.browser, session.made("lines")
    every = list(range(12))
    browser.open(session.page("lines"), "tab=heads&heads=" + "_".join(map(str, every)))
    drawn = """const heads = attentiveView.chosenHeads();
const lines = attentiveView.strongLines(heads, attentiveView.leastWeight(), attentiveView.linesOfEach());
return lines.flatMap(({ flat }, n) => Array.from({ length: flat.length / 3 }, (_, k) => [heads[n].number, flat[3 * k], flat[3 * k + 1]]))"""
    assert browser.js("return [attentiveView.linesOfEach(), attentiveView.leastWeight()]") == [2, 0.0078]
    for per in (None, 1, 5):
        if per:
            browser.set(per=per)
        found = {tuple(each) for each in browser.js(drawn)}
        expected = strongest(page, every, per or 2, 0.0078)
        # Equal weights may change places.
        assert len(found) == len(expected) == lines_drawn(browser) and len(found & expected) > 0.97 * len(expected), per
    browser.set(per=1, min=0.3)
    fewer = lines_drawn(browser)
    browser.set(min=0.97)
    assert 0 < lines_drawn(browser) < fewer <= 256
    browser.set(per=17, min=0.3)
    assert lines_drawn(browser) > fewer
    assert len(set(browser.js("return attentiveView.layer().heads.map(attentiveView.headColour)"))) == 12


def test_lines_begin_at_a_query_that_is_seen(session):
    browser = session.browser
    browser.open(session.page("lines"), "tab=heads&heads=0_1_2_3_4_5_6_7_8_9_10_11")
    watch = """const { curves } = attentiveView.CanvasSurface.prototype; window.starts = []; window.colours = new Set();
attentiveView.CanvasSurface.prototype.curves = function (flat, colour) {
  for (let n = 0; n < flat.length; n += 5) { window.starts.push(flat[n + 1]); window.colours.add(colour); }
  return curves.call(this, flat, colour);
};"""
    browser.js(watch)
    browser.js("document.querySelector('.scroller').scrollTop = 900")
    browser.settle()
    height = browser.js("return document.querySelector('.lines canvas').clientHeight")
    starts = browser.js("return window.starts")
    assert starts and all(0 <= y <= height for y in starts)
    assert browser.js("return window.colours.size") > 4
    colour = browser.js("return [...window.colours][2]")
    head = browser.js("return attentiveView.layer().heads.map(attentiveView.headColour)").index(colour)
    browser.js("window.colours.clear()")
    browser.at(f".chips button:nth-child({head + 1})", 10, 10)
    assert browser.js("return [...window.colours]") == [colour], "the lines of the head that is pointed at"
    assert browser.js("const s = document.querySelector('.scroller'); return s.scrollWidth - s.clientWidth") <= 0


def test_the_threshold_is_the_reader_s(session):
    browser = session.browser
    browser.open(session.page("lines"), "tab=heads&heads=0")
    move = """const input = document.querySelector(`input[data-state=${arguments[0]}]`); input.value = arguments[1];
input.dispatchEvent(new Event('input', { bubbles: true }))"""
    before = lines_drawn(browser)
    browser.js(move, "per", 1)
    browser.settle()
    assert browser.state("per") == 1 and lines_drawn(browser) < before
    browser.js(move, "min", 0.5)
    browser.settle()
    assert browser.state("min") == 0.5 and "weaker ones are left out" not in browser.texts(".lines .note")[0]
    outputs = browser.js("return Array.from(document.querySelectorAll('.field output'), (each) => each.offsetParent && each.textContent).filter(Boolean)")
    assert outputs == ["1", "0.5"], outputs
