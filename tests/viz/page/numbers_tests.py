"""The numbers that the page shows are numpy's, within half a step."""

import math

import numpy

from browser import number

CELL = """const head = attentiveView.data.layers[arguments[0]].heads[arguments[1]];
const { queries, keys } = head.layer;
return head.load().then(() => Array.from({ length: queries * keys }, (_, n) => head.weight(Math.floor(n / keys), n % keys)))"""


def weights_of(browser, view, head, shape):
    """All weights that the page would show, NaN for a hidden key."""
    flat = browser.js(CELL, view, head)
    return numpy.array([math.nan if each is None else each for each in flat]).reshape(shape)


def test_every_weight_is_within_half_a_step(session):
    for name in ("one", "small", "window", "holes", "full", "cross", "vit", "rtl", "coarse"):
        page = session.made(name)
        session.browser.open(session.page(name))
        for view, heads in enumerate(page.heads):
            for n, head in enumerate(heads):
                shown = weights_of(session.browser, view, n, head.weights.shape)
                assert (numpy.isnan(shown) == ~head.keep).all(), (name, view, n)
                half = head.row_max[:, None].astype(numpy.float64) / page.levels / 2
                away = numpy.abs(shown - head.weights)[head.keep]
                bound = numpy.broadcast_to(half, head.keep.shape)[head.keep]
                assert (away <= bound * (1 + 1e-5) + 1e-12).all(), (name, view, n, away.max())


def test_the_readout_of_a_cell(session):
    browser, page = session.browser, session.made("small")
    head = page.heads[1][3]
    for query, key in ((13, 12), (9, 0), (7, 7), (2, 1)):
        browser.open(session.page("small"), f"tab=map&layer=1&head=3&query={query}&key={key}")
        shown = browser.readout()
        weight, half = head.weights[query, key], head.row_max[query] / 255 / 2
        if shown["Weight"].startswith("<"):
            assert weight <= half * 1.01, (query, key, shown)
        else:
            assert abs(number(shown["Weight"]) - weight) <= half + 5e-4 * weight, (query, key, shown)
            assert abs(number(shown["Weight"].split("± ")[1]) - half) <= 0.06 * half, shown
            score = math.log(weight) + head.logsumexp[query]
            assert abs(number(shown["Score"]) - score) <= half / (weight - half) + 1e-3 * abs(score), (shown, score)
        assert abs(number(shown["Step"]) - 2 * half) <= 1e-3 * half, shown


def test_ranks_are_exact_among_the_largest_and_near_elsewhere(session):
    browser, page = session.browser, session.made("full")
    head = page.heads[0][4]
    order = numpy.argsort(-head.weights[11], kind="stable")
    for place in (0, 3, 7, 8, 20, 39):
        browser.open(session.page("full"), f"tab=map&head=4&query=11&key={order[place]}")
        shown = browser.readout()["Rank"]
        assert shown.endswith(" of 40"), shown
        if place < 8:
            assert shown == f"{place + 1} of 40", (place, shown)
        else:
            assert shown.startswith("about ") and abs(int(shown.split()[1]) - place - 1) <= 2, (place, shown)


def test_hidden_is_not_zero(session):
    browser, page = session.browser, session.made("holes")
    head = page.heads[0][0]
    query = 5
    hidden, seen = numpy.flatnonzero(~head.keep[query])[0], numpy.flatnonzero(head.keep[query])[0]
    browser.open(session.page("holes"), f"tab=map&query={query}&key={hidden}")
    assert browser.readout()["Weight"] == "hidden by the mask"
    browser.set(key=int(seen))
    assert browser.readout()["Weight"] != "hidden by the mask" and "Rank" in browser.readout()
    browser.set(query=3, key=0)
    assert browser.texts(".top td") == ["This query sees no key."]


def test_top_keys_are_in_order(session):
    browser, page = session.browser, session.made("small")
    head = page.heads[0][2]
    for query in (0, 3, 13):
        browser.open(session.page("small"), f"tab=map&head=2&query={query}")
        keys = [int(text.split(" ")[0]) for text in browser.texts(".top tbody td:first-child")]
        assert keys == [each for each in head.top()[query] if each >= 0], (query, keys)
        for key, shown in zip(keys, browser.texts(".top tbody td.weight")):
            half = head.row_max[query] / 255 / 2
            assert shown.startswith("<") or abs(number(shown) - head.weights[query, key]) <= half + 5e-4, (
                query,
                key,
                shown,
            )


def test_statistics_are_those_of_the_page(session):
    browser, page = session.browser, session.made("cross")
    browser.open(session.page("cross"), "tab=numbers")
    rows = browser.js(
        "return Array.from(document.querySelectorAll('.statistics tbody tr'), (row) => Array.from(row.children, (cell) => cell.textContent))"
    )
    heads = [head for view in page.heads for head in view]
    assert len(rows) == len(heads)
    for row, head in zip(rows, heads):
        assert int(row[1]) == head.number
        for text, name in zip(row[2:], ("entropy", "entropy_share", "distance", "previous", "first", "sink")):
            value = head.statistics[name]
            if value is None:
                assert text == "–", (name, text)
            else:
                assert abs(number(text) - value) <= 1e-3 * abs(value) + 2e-6, (name, text, value)
    assert any(head.statistics["sink"] > 0.01 for head in heads)


def test_linear_attention_has_no_score(session):
    session.browser.open(session.page("cross"), "tab=map&layer=2&query=4&key=2")
    assert "Score" not in session.browser.readout() and "Weight" in session.browser.readout()
    assert session.browser.texts(".top thead th") == ["Key", "Weight"]


def test_features_multiply_to_the_score(session):
    browser, page = session.browser, session.made("neurons")
    q, k = page.q_and_k
    browser.open(session.page("neurons"), "tab=neurons&head=2&query=9&key=4")
    rows = browser.js(
        "return Array.from(document.querySelectorAll('.features tbody tr'), (row) => Array.from(row.children, (cell) => cell.textContent))"
    )
    assert len(rows) == 32
    for n, row in enumerate(rows):
        assert int(row[0]) == n
        for text, value in zip(row[1:], (q[9, n], k[4, n], q[9, n] * k[4, n])):
            assert abs(number(text) - value) <= 1e-3 * abs(value), (n, row)
    product = float(q[9].astype(numpy.float64) @ k[4])
    words = browser.texts(".sum")[0].replace("\u2212", "-").replace(";", " ").split()
    assert abs(float(words[2]) - product) <= 1e-3 * abs(product), words
    browser.set(features="size")
    shown = [int(text) for text in browser.texts(".features tbody th")]
    sizes = numpy.abs(q[9] * k[4])[shown]
    assert (numpy.diff(sizes) <= 1e-7).all(), sizes


def test_rollout_and_class_token(session):
    browser, page = session.browser, session.made("vit")
    browser.open(session.page("vit"), "tab=image&layer=2&head=1")
    head = page.heads[2][1]
    text = browser.texts(".imageview .note")[0].split()
    shown, largest = float(text[4]), float(text[text.index("most") + 1])
    assert abs(shown - head.weights[0, 1:].sum()) < 64 * head.row_max[0] / 510, text
    assert abs(largest - head.weights[0, 1:].max()) < head.row_max[0] / 510 + 1e-4, text
    bare = """const shown = document.querySelector('.imageview canvas'), copy = document.createElement('canvas');
const pen = copy.getContext('2d', { willReadFrequently: true });
pen.drawImage(shown, -Math.floor(shown.width / 2), -20);
return Array.from(pen.getImageData(0, 0, 1, 1).data)"""
    with_picture = browser.js(bare)
    browser.set(blend=0)
    assert (
        browser.js(bare) != with_picture and browser.js(bare)[2] > browser.js(bare)[0] > 60
    ), "the sky of the picture, which stands in layer 0"
    browser.set(picture="rollout")
    assert browser.texts(".imageview .note")[0].startswith("Rollout of the class token")
    order = numpy.argsort(-page.rollout, kind="stable")[:8]
    assert [int(text.split(" ")[0]) for text in browser.texts(".top tbody td:first-child")] == order.tolist()
    for key, text in zip(order, browser.texts(".top tbody td:last-child")):
        assert abs(number(text) - page.rollout[key]) <= 1e-3 * page.rollout[key], (key, text)
    browser.set(query=0, key=5)
    assert abs(number(browser.readout()["Rollout"]) - page.rollout[5]) <= 1e-3 * page.rollout[5], browser.readout()
