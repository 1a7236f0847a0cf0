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
