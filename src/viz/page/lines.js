// Selects the lines that the head view draws: the strongest of each query, or all of one query or key.
(() => {
  "use strict";
  const view = window.attentiveView;
  const most = 6000;  // lines drawn at once; the strongest are kept
  const buckets = 256;
  let known = {};  // the most recent result

  // Calls visit(i, j, weight) for every weight of at least `min` that a query in [first, end) gives to a key
  // it sees.
  function eachWeight(head, min, visit, first = 0, end = head.layer.queries) {
    const { mask, weights } = head;
    for (let i = first; i < end; i++) {
      const step = head.step(i);
      if (!(step > 0)) continue;
      const least = Math.max(1, Math.ceil(min / step - 1e-6));
      const base = mask.offset[i] - mask.first[i];
      for (let j = mask.first[i]; j < mask.end[i]; j++) {
        const steps = weights[base + j];
        if (steps >= least && (!mask.holes || mask.place(i, j) >= 0)) visit(i, j, steps * step);
      }
    }
  }
  const bucketOf = (weight) => Math.min(buckets - 1, Math.floor(weight * buckets));

  // The lowest bucket of weights to draw, so that no more than `most` lines are drawn.
  function lowestBucket(counts) {
    let total = 0;
    for (let n = buckets - 1; n >= 0; n--) {
      total += counts[n];
      if (total > most) return Math.min(n + 1, buckets - 1);
    }
    return 0;
  }

  // The strongest weights of a query over all heads, at most `per`, as [head, key, weight, …], weakest first.
  function strongestOf(heads, query, min, per) {
    const best = [];
    let seen = 0;
    heads.forEach((head, n) => eachWeight(head, min, (_, key, weight) => {
      seen++;
      if (best.length === per && weight <= best[0][2]) return;
      if (best.length === per) best.shift();
      let at = best.length;
      while (at > 0 && best[at - 1][2] > weight) at--;
      best.splice(at, 0, [n, key, weight]);
    }, query, query + 1));
    return { best, left: seen - best.length };
  }

  // Calls visit(head, i, j, weight) for the requested lines; returns how many were left out.
  function eachWanted(heads, min, per, visit) {
    let left = 0;
    if (per >= view.everyLine) heads.forEach((head, n) => eachWeight(head, min, (i, j, weight) => visit(n, i, j, weight)));
    else for (let i = 0; i < heads[0].layer.queries; i++) {
      const found = strongestOf(heads, i, min, per);
      left += found.left;
      for (const [n, j, weight] of found.best) visit(n, i, j, weight);
    }
    return left;
  }

  function collect(heads, min, per) {
    const counts = new Uint32Array(buckets);
    eachWanted(heads, min, per, (n, i, j, weight) => counts[bucketOf(weight)]++);
    const lowest = lowestBucket(counts);
    const flats = heads.map(() => []);
    let drawn = 0;
    let weak = 0;
    const left = eachWanted(heads, min, per, (n, i, j, weight) => {
      if (bucketOf(weight) < lowest || drawn >= most) return weak++;
      flats[n].push(i, j, weight);
      return drawn++;
    });
    return { flats, left: left + weak };
  }

  // Returns { flat: [query, key, weight, …], left } for each head: the `per` strongest lines of each query
  // over all heads together. `left`, the number of lines that were not drawn, is set in the first head and 0
  // in the others.
  view.strongLines = (heads, min, per) => {
    if (heads.length === 0) return [];
    const name = [...heads.map((head) => `${head.layer.index}.${head.index}`), min, per].join();
    if (known.name !== name) known = { name, ...collect(heads, min, per) };
    return known.flats.map((flat, n) => ({ flat, left: n === 0 ? known.left : 0 }));
  };

  // Defaults that depend on the length of the text: fewer lines if there are more tokens or heads, and only
  // weights of at least twice the mean.
  view.linesOfEach = () => {
    const largest = view.chosenHeads().length > 1 ? 6 : view.everyLine - 1;
    return view.state.per || view.clamp(Math.round(512 / view.layer().queries), 1, largest);
  };
  view.leastWeight = () => view.state.min ?? Math.min(0.05, Number((2 / view.layer().keys).toPrecision(2)));

  view.linesOfQuery = (head, query, min) => {
    const flat = [];
    for (let j = head.mask.first[query]; j < head.mask.end[query]; j++) {
      const weight = head.weight(query, j);
      if (weight !== null && weight > 0 && weight >= min) flat.push(query, j, weight);
    }
    return { flat, left: 0 };
  };

  view.linesOfKey = (head, key, min) => {
    const flat = [];
    for (let i = 0; i < head.layer.queries; i++) {
      const weight = head.weight(i, key);
      if (weight !== null && weight > 0 && weight >= min) flat.push(i, key, weight);
    }
    return { flat, left: 0 };
  };
})();
