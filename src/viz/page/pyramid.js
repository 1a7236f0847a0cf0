// The map of one head at repeatedly halved sizes. A cell of the next level is the largest of four, so that no
// strong weight vanishes when the map is small. Values are 0 for hidden cells, otherwise 1..255 for the
// colour.
(() => {
  "use strict";
  const view = window.attentiveView;
  const budget = 12; // milliseconds of work between two pauses

  // Writes the colour values of row i, keys [from, to), to out[at…].
  function writeRow(pyramid, i, from, to, out, at) {
    const { mask, weights } = pyramid.head;
    const look = pyramid.look(i);
    const [first, end] = [mask.first[i], mask.end[i]];
    const base = mask.offset[i] - first;
    out.fill(0, at, at + to - from);
    for (let j = Math.max(from, first); j < Math.min(to, end); j++) {
      if (mask.holes && mask.place(i, j) < 0) continue;
      out[at + j - from] = look[weights[base + j]];
    }
  }

  function halve(fine, rows, columns, coarse, firstRow, lastRow) {
    const width = Math.ceil(columns / 2);
    for (let y = firstRow; y < lastRow; y++) {
      const top = 2 * y * columns;
      const bottom = 2 * y + 1 < rows ? top + columns : top;
      for (let x = 0; x < width; x++) {
        const left = 2 * x;
        const right = left + 1 < columns ? left + 1 : left;
        const upper = fine[top + left] > fine[top + right] ? fine[top + left] : fine[top + right];
        const lower = fine[bottom + left] > fine[bottom + right] ? fine[bottom + left] : fine[bottom + right];
        coarse[y * width + x] = upper > lower ? upper : lower;
      }
    }
  }

  view.Pyramid = class {
    constructor(head, scale) {
      const { queries, keys } = head.layer;
      Object.assign(this, { head, scale, levels: [null], sizes: [[queries, keys]], ready: false });
    }

    // The colour value for each number of steps in row i.
    look(i) {
      const { levels } = view.data;
      const share = this.scale === "row" ? 1 : this.head.largest > 0 ? this.head.rowMax[i] / this.head.largest : 0;
      const name = Math.round(share * 4096);
      this.looks ||= new Map();
      if (!this.looks.has(name)) {
        const value = (_, steps) => 1 + Math.round((254 * share * Math.min(steps, levels)) / levels);
        this.looks.set(name, Uint8Array.from({ length: 256 }, value));
      }
      return this.looks.get(name);
    }

    async slices(count, step, work) {
      let since = performance.now();
      for (let from = 0; from < count; from += step) {
        work(from, Math.min(from + step, count));
        if (performance.now() - since < budget) continue;
        await view.pause();
        since = performance.now();
      }
    }

    // Level 1 is computed directly from the weights, a pair of rows at a time; each further level from the
    // previous one. Level 0 is never stored.
    async build() {
      while (Math.max(...this.sizes.at(-1)) > 1) {
        const level = this.levels.length;
        const [rows, columns] = this.sizes[level - 1];
        const size = [Math.ceil(rows / 2), Math.ceil(columns / 2)];
        const coarse = new Uint8Array(size[0] * size[1]);
        const pair = new Uint8Array(2 * columns);
        const fromWeights = (first, last) => {
          for (let y = first; y < last; y++) {
            const both = 2 * y + 1 < rows;
            writeRow(this, 2 * y, 0, columns, pair, 0);
            if (both) writeRow(this, 2 * y + 1, 0, columns, pair, columns);
            halve(pair, both ? 2 : 1, columns, coarse.subarray(y * size[1]), 0, 1);
          }
        };
        const fromLevel = (first, last) => halve(this.levels[level - 1], rows, columns, coarse, first, last);
        await this.slices(size[0], 16, level === 1 ? fromWeights : fromLevel);
        this.levels.push(coarse);
        this.sizes.push(size);
      }
      this.ready = true;
    }

    // Copies a part of a level: `height` rows from y, `width` columns from x.
    part(level, x, y, width, height) {
      const out = new Uint8Array(width * height);
      const columns = this.sizes[level][1];
      for (let n = 0; n < height; n++) {
        if (level === 0) writeRow(this, y + n, x, x + width, out, n * width);
        else out.set(this.levels[level].subarray((y + n) * columns + x, (y + n) * columns + x + width), n * width);
      }
      return out;
    }
  };
})();
