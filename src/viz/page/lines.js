// Which lines the head view draws: all strong ones of a head, or those of one query or key.
(() => {
  "use strict";
  const view = window.attentiveView;
  const most = 6000; // lines of a head that are drawn at once; the strongest are kept
  const buckets = 256;
  const cache = new WeakMap();

  // Calls visit(i, j, weight) for every weight of at least `min` that a query gives to a key it sees.
  function eachWeight(head, min, visit) {
    const { mask, weights } = head;
    for (let i = 0; i < head.layer.queries; i++) {
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

  // The lowest bucket of weights that is drawn, so that no more than `most` lines are.
  function lowestBucket(counts) {
    let total = 0;
    for (let n = buckets - 1; n >= 0; n--) {
      total += counts[n];
      if (total > most) return Math.min(n + 1, buckets - 1);
    }
    return 0;
  }

  function collect(head, min) {
    const counts = new Uint32Array(buckets);
    eachWeight(head, min, (i, j, weight) => counts[bucketOf(weight)]++);
    const lowest = lowestBucket(counts);
    const flat = [];
    let left = 0;
    eachWeight(head, min, (i, j, weight) => {
      if (bucketOf(weight) >= lowest && flat.length < 3 * most) flat.push(i, j, weight);
      else left++;
    });
    return { flat, left };
  }

  // { flat: [query, key, weight, …], left: how many were not drawn }.
  view.strongLines = (head, min) => {
    const known = cache.get(head);
    if (known && known.min === min) return known.lines;
    const lines = collect(head, min);
    cache.set(head, { min, lines });
    return lines;
  };

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
