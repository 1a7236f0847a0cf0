"""The league's first part: one call of attention, forward, B1 H12 D64."""

import datetime
import tempfile
from contextlib import ExitStack

from contender import Refused, compared, take_turns

VARIANTS = ("causal", "full", "ALiBi", "softcap", "relative bias")
SCORES = VARIANTS[2:]
ALLOWED = {"fp32": 1e-4, "bf16": 3e-2}


def token_count(tokens):
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


def our_ways(variant):
    """This package's contenders; the first one is "ours" in the table."""
    return ["attentive, score function", "attentive, built-in option"] if variant in SCORES else ["attentive"]


def run_case(league, case):
    """The rows of one case: every contender beside the first of ours."""
    rows = []

    def row(way, **fields):
        rows.append({"part": "attention", "case": f"{case['variant']} T={token_count(case['tokens'])}", "dtype": case["dtype"], "way": way,
                     "date": datetime.date.today().isoformat(), **fields})

    with ExitStack() as stack:
        case["folder"] = stack.enter_context(tempfile.TemporaryDirectory())
        ours = stack.enter_context(league.ours())
        case.update(ours.ask("inputs", **case))
        asked = [(ours, way) for way in our_ways(case["variant"])]
        for module, peer in league.attention_peers():
            contender = stack.enter_context(league.started(module, peer))
            asked += [(contender, way) for way in peer.ways]
        ready, errors = {}, {}
        for contender, way in asked:
            try:
                errors[way] = contender.ask("prepare", way=way, **case)["error"]
                if not errors[way] <= ALLOWED[case["dtype"]]:
                    raise Refused(f"wrong result: error {errors[way]:.1e}")
            except Refused as reason:
                row(way, refused=str(reason))
                continue
            ready[way] = lambda contender=contender, way=way: contender.ask("sample", way=way)["seconds"]
        first = our_ways(case["variant"])[0]
        if first not in ready:
            return rows
        seconds, refused = take_turns(ready, league.rounds)
        for way, reason in refused.items():
            row(way, refused=reason)
        if first not in seconds:
            return rows
        for way in seconds:
            if way != first or len(ready) == 1:
                row(way, error=errors[way], rounds=league.rounds, **compared(seconds[way], seconds[first]))
    return rows


def prepare(league):
    """Installs the peers."""
    league.attention_peers()


def run(league):
    for dtype in league.dtypes:
        if dtype not in ALLOWED:
            continue
        for tokens in league.tokens:
            for variant in league.variants:
                league.add(run_case(league, {"variant": variant, "tokens": tokens, "dtype": dtype}))
