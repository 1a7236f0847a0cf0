// One head: its weights, decoded when they are first asked for, and what can be said about a cell.
(() => {
  "use strict";
  const view = window.attentiveView;
  const most = 256 * 2 ** 20; // bytes of decoded weights that are kept
  const kept = new Set(); // heads with decoded weights, the one read last at the end

  function keep(head) {
    kept.add(head);
    let total = 0;
    for (const each of kept) total += each.weights.length;
    for (const each of kept) {
      if (total <= most || each === head) break;
      total -= each.weights.length;
      each.weights = null;
      kept.delete(each);
    }
  }

  view.Head = class {
    constructor(raw, layer, index, mask) {
      Object.assign(this, { raw, layer, index, mask, number: raw.head, weights: null });
    }

    get name() {
      return `head ${this.number}`;
    }
    get rowMax() {
      return (this._rowMax ||= view.numbers(this.raw.row_max, "Float32"));
    }
    get logsumexp() {
      return (this._logsumexp ||= this.raw.logsumexp ? view.numbers(this.raw.logsumexp, "Float32") : null);
    }
    get top() {
      return (this._top ||= view.numbers(this.raw.top, this.raw.top_bytes === 2 ? "Uint16" : "Uint32"));
    }
    get largest() {
      return (this._largest ||= this.rowMax.reduce((most, each) => (each > most ? each : most), 0));
    }
    get ready() {
      return this.weights !== null;
    }

    // The small map as a picture with see-through cells where every key is hidden by its span.
    thumb() {
      const { thumb, thumb_size: rows, thumb_columns: columns } = this.raw;
      this._thumbs ||= new Map(); // by theme
      if (!this._thumbs.has(view.theme())) {
        const parts = this.mask.hiddenParts(this.layer.keys, rows, columns);
        const values = view.bytes(thumb).map((value, n) => (parts[n] ? 0 : Math.max(value, 1)));
        this._thumbs.set(view.theme(), view.pixels(values, columns, rows, 0));
      }
      return this._thumbs.get(view.theme());
    }

    // Reads the weights once, however often it is asked for; `problem` says why it could not.
    load() {
      this.loading ||= this.decode().catch((error) => (this.problem = error.message)).finally(() => (this.loading = null));
      return this.loading;
    }

    async decode() {
      await this.mask.load();
      const text = document.getElementById(`w-${this.layer.index}-${this.number}`).textContent;
      this.weights = await view.inflate(text, this.mask.cells);
      keep(this);
    }

    // Whole steps of a cell's weight, or -1 if the key is hidden.
    steps(i, j) {
      const place = this.mask.place(i, j);
      return place < 0 ? -1 : this.weights[place];
    }
    step(i) {
      return this.rowMax[i] / view.data.levels;
    }
    weight(i, j) {
      const steps = this.steps(i, j);
      return steps < 0 ? null : steps * this.step(i);
    }

    // Log weight + logsumexp; the score of a weight below half a step is only known to be below that one's.
    score(i, j) {
      const steps = this.steps(i, j);
      if (steps < 0 || !this.logsumexp) return null;
      const below = steps === 0;
      return { below, value: Math.log((below ? 0.5 : steps) * this.step(i)) + this.logsumexp[i] };
    }

    // The keys of largest weight, in order: exact.
    topKeys(i) {
      const width = this.raw.top_count;
      const none = this.raw.top_bytes === 2 ? 0xffff : 0xffffffff;
      return Array.from(this.top.subarray(i * width, (i + 1) * width)).filter((key) => key !== none);
    }

    // { rank, exact, of }: exact among the keys of topKeys, otherwise by the quantised weights, of which many are equal.
    rank(i, j) {
      const own = this.steps(i, j);
      if (own < 0) return null;
      const of = this.mask.seen(i);
      const top = this.topKeys(i);
      if (top.includes(j)) return { rank: top.indexOf(j) + 1, exact: true, of };
      let larger = 0;
      let equal = 0;
      for (let k = this.mask.first[i]; k < this.mask.end[i]; k++) {
        const steps = this.steps(i, k);
        if (steps > own) larger++;
        else if (steps === own) equal++;
      }
      return { rank: Math.max(larger + Math.ceil((equal + 1) / 2), top.length + 1), exact: false, of };
    }
  };
})();
