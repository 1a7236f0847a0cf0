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

// Tiles of 256 × 256 values of a pyramid as pictures, cached while they are likely to be drawn again.
(() => {
  "use strict";
  const view = window.attentiveView;
  const side = 256;
  const most = 160;  // cached tiles: 40 MB
  const kept = new Map();
  const pyramids = [];  // of the heads shown last, the newest at the end

  function tile(pyramid, level, column, row) {
    const name = `${pyramid.id}/${view.theme().dark}/${level}/${column}/${row}`;
    const known = kept.get(name);
    if (known) {
      kept.delete(name);
      kept.set(name, known);
      return known;
    }
    const [rows, columns] = pyramid.sizes[level];
    const [x, y] = [column * side, row * side];
    const [width, height] = [Math.min(side, columns - x), Math.min(side, rows - y)];
    const made = view.pixels(pyramid.part(level, x, y, width, height), width, height, 0);
    kept.set(name, made);
    if (kept.size > most) kept.delete(kept.keys().next().value);
    return made;
  }

  // The pyramid of a head; it is started if it does not exist, and view.redraw is called when it is ready.
  view.pyramidOf = (head, scale) => {
    const known = pyramids.find((each) => each.head === head && each.scale === scale);
    if (known) return known;
    const made = new view.Pyramid(head, scale);
    made.id = `${head.layer.index}.${head.index}.${scale}`;
    pyramids.push(made);
    if (pyramids.length > 4) pyramids.shift();
    made.build().then(view.redraw);
    return made;
  };

  // The finest level at which a value covers at least a pixel, so that no value is skipped.
  view.levelFor = (pyramid, cellSize, ratio) => {
    const level = Math.max(0, Math.ceil(Math.log2(1 / (cellSize * ratio)) - 1e-9));
    return Math.min(level, pyramid.sizes.length - 1);
  };

  // Draws the cells x0..x1, y0..y1 of the map; a cell of level 0 is sx by sy pixels, and cell (0, 0) begins
  // at (left, top).
  view.drawTiles = (surface, pyramid, level, { left, top, sx, sy }, [x0, x1], [y0, y1]) => {
    const span = side * 2 ** level;
    const [rows, columns] = pyramid.sizes[0];
    for (let row = Math.floor(y0 / span); row * span < y1; row++) {
      for (let column = Math.floor(x0 / span); column * span < x1; column++) {
        const picture = tile(pyramid, level, column, row);
        const width = Math.min(picture.width * 2 ** level, columns - column * span);
        const height = Math.min(picture.height * 2 ** level, rows - row * span);
        const to = [left + column * span * sx, top + row * span * sy, width * sx, height * sy];
        surface.image(picture, [0, 0, width / 2 ** level, height / 2 ** level], to);
      }
    }
  };
})();

// Computes where the cells of the map are on the screen: gutters for labels, zoom and pan.
(() => {
  "use strict";
  const view = window.attentiveView;
  const largest = 64;  // maximum pixels of a cell

  // The width of the longest label. Sampled: at most about 600 labels are measured.
  const widths = new WeakMap();
  function widest(tokens) {
    if (!widths.has(tokens)) {
      let room = 0;
      const step = Math.max(1, Math.floor(tokens.count / 600));
      for (let n = 0; n < tokens.count; n += step) room = Math.max(room, view.textWidth(tokens.at(n), 12));
      widths.set(tokens, room);
    }
    return widths.get(tokens);
  }
  const gutter = (tokens, most) => Math.min(Math.max(widest(tokens) + 14, 34), most);

  // The cells of a whole map are square, unless the map is so elongated that one side would vanish.
  function fit(layer, width, height) {
    const [sx, sy] = [Math.min(width / layer.keys, largest), Math.min(height / layer.queries, largest)];
    const size = Math.min(sx, sy);
    const long = Math.max(layer.keys / layer.queries, layer.queries / layer.keys) > 4;
    const most = Math.max(8 * size, 24);
    return long ? { sx: Math.min(sx, most), sy: Math.min(sy, most) } : { sx: size, sy: size };
  }

  // Limits the first visible cell when `room` pixels show part of `count` cells of `size` pixels.
  const settle = (from, count, size, room) => view.clamp(from, 0, Math.max(0, count - room / size));

  view.mapFrame = (layer, width, height) => {
    const left = gutter(layer.queryTokens, Math.min(120, 0.28 * width));
    const top = Math.min(gutter(layer.keyTokens, 110), 0.3 * height);
    const [roomX, roomY] = [width - left - 1, height - top - 1];
    const whole = fit(layer, roomX, roomY);
    let [x, y, zoom] = view.state.at || [0, 0, 1];
    zoom = view.clamp(zoom, 1, Math.max(1, largest / Math.min(whole.sx, whole.sy)));
    const [sx, sy] = [whole.sx * zoom, whole.sy * zoom];
    [x, y] = [settle(x, layer.keys, sx, roomX), settle(y, layer.queries, sy, roomY)];
    const usedX = Math.min(roomX, layer.keys * sx);
    const usedY = Math.min(roomY, layer.queries * sy);
    const upright = widest(layer.keyTokens) > sx - 8;  // horizontal key labels would overlap
    return { layer, width, height, left, top, sx, sy, x, y, zoom, usedX, usedY, upright };
  };

  // The cell at a point of the canvas; null outside the map.
  view.cellAt = (frame, px, py) => {
    if (px < frame.left || py < frame.top || px >= frame.left + frame.usedX || py >= frame.top + frame.usedY) return null;
    const key = Math.floor(frame.x + (px - frame.left) / frame.sx);
    const query = Math.floor(frame.y + (py - frame.top) / frame.sy);
    return key < frame.layer.keys && query < frame.layer.queries ? { query, key } : null;
  };

  // Zooms by `factor` around a point of the canvas; the cell at that point stays there.
  view.zoomedAt = (frame, factor, px, py) => {
    const zoom = frame.zoom * factor;
    if (zoom <= 1.0001) return null;
    const share = 1 - 1 / factor;
    const keep = (from, offset, size) => Math.max(0, from + (offset / size) * share);
    const at = [keep(frame.x, px - frame.left, frame.sx), keep(frame.y, py - frame.top, frame.sy), zoom];
    return at.map((value) => Math.round(value * 1000) / 1000);
  };

  // Moves the visible part by (dx, dy) pixels.
  view.movedBy = (frame, dx, dy) => {
    const { layer } = frame;
    const x = settle(frame.x - dx / frame.sx, layer.keys, frame.sx, frame.width - frame.left - 1);
    const y = settle(frame.y - dy / frame.sy, layer.queries, frame.sy, frame.height - frame.top - 1);
    return [Math.round(x * 1000) / 1000, Math.round(y * 1000) / 1000, Math.round(frame.zoom * 1000) / 1000];
  };

  // Moves the visible part just far enough to show a cell.
  view.showingCell = (frame, query, key) => {
    const dx = Math.max(0, frame.x - key) * frame.sx - Math.max(0, key + 1 - frame.x - frame.usedX / frame.sx) * frame.sx;
    const dy = Math.max(0, frame.y - query) * frame.sy - Math.max(0, query + 1 - frame.y - frame.usedY / frame.sy) * frame.sy;
    return dx === 0 && dy === 0 ? view.state.at : view.movedBy(frame, dx, dy);
  };

  // The cells that are visible along an axis, as [first, end).
  view.seenCells = (from, size, used, count) => [Math.floor(from), Math.min(count, Math.ceil(from + used / size))];
})();

// The map: one head as a matrix, with a row for each query and a column for each key. Hidden cells are
// hatched; no weight is.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  const stage = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "attention map" });
  const box = element("div", { class: "stagebox" }, stage);
  const legend = element("div", { class: "legend" });
  const node = element("div", { class: "mapview" }, box, legend);

  // The step between position labels that need `room` pixels each: 1, 2 or 5 times a power of ten.
  function tickStep(size, room) {
    const least = room / size;
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least);
  }

  function drawRows(surface, frame, chosen) {
    const { layer } = frame;
    const theme = view.theme();
    const [first, end] = view.seenCells(frame.y, frame.sy, frame.usedY, layer.queries);
    const each = frame.sy >= 13;
    const step = each ? 1 : tickStep(frame.sy, 30);
    const label = (i, bold) => {
      const y = frame.top + (i + 0.5 - frame.y) * frame.sy;
      if (y < frame.top || y > frame.top + frame.usedY) return;
      const text = each || bold ? layer.queryTokens.at(i) : String(i);
      if (bold && !each) surface.rect(0, y - 9, frame.left - 2, 18, theme.paper);
      const look = { size: 12, fill: bold ? theme.ink : theme.soft, bold };
      surface.text(frame.left - 7, y, text, { ...look, align: "right", room: frame.left - 9 });
    };
    for (let i = Math.ceil(first / step) * step; i < end; i += step) if (i !== chosen) label(i, false);
    if (chosen !== null) label(chosen, true);
  }

  // Labels are vertical above their columns, or horizontal if the columns are wide enough.
  function drawColumns(surface, frame, chosen) {
    const { layer } = frame;
    const theme = view.theme();
    const [first, end] = view.seenCells(frame.x, frame.sx, frame.usedX, layer.keys);
    const each = frame.sx >= 13;
    const step = each ? 1 : tickStep(frame.sx, 52);
    const label = (j, bold) => {
      const x = frame.left + (j + 0.5 - frame.x) * frame.sx;
      if (x < frame.left || x > frame.left + frame.usedX) return;
      const look = { size: 12, fill: bold ? theme.ink : theme.soft, bold };
      const text = each ? layer.keyTokens.at(j) : String(j);
      if (!frame.upright || (!each && !bold)) return surface.text(x, frame.top - 10, text, { ...look, align: "center" });
      if (!each) surface.rect(x - 9, 0, 18, frame.top - 2, theme.paper);
      surface.text(x, frame.top - 6, layer.keyTokens.at(j), { ...look, turn: -90, room: frame.top - 9 });
    };
    for (let j = Math.ceil(first / step) * step; j < end; j += step) if (j !== chosen) label(j, false);
    if (chosen !== null) label(chosen, true);
  }

  function drawSeparators(surface, frame) {
    if (Math.min(frame.sx, frame.sy) < 12) return;
    const paper = view.theme().paper;
    const [i0, i1] = view.seenCells(frame.y, frame.sy, frame.usedY, frame.layer.queries);
    const [j0, j1] = view.seenCells(frame.x, frame.sx, frame.usedX, frame.layer.keys);
    for (let i = i0; i <= i1; i++) surface.rect(frame.left, frame.top + (i - frame.y) * frame.sy - 0.5, frame.usedX, 1, paper);
    for (let j = j0; j <= j1; j++) surface.rect(frame.left + (j - frame.x) * frame.sx - 0.5, frame.top, 1, frame.usedY, paper);
  }

  function drawCells(surface, frame, head, ratio) {
    const { layer } = frame;
    surface.hatch(frame.left, frame.top, frame.usedX, frame.usedY);
    const origin = { left: frame.left - frame.x * frame.sx, top: frame.top - frame.y * frame.sy, sx: frame.sx, sy: frame.sy };
    const pyramid = head.ready ? view.pyramidOf(head, view.state.scale) : null;
    if (pyramid && pyramid.ready) {
      const level = view.levelFor(pyramid, Math.min(frame.sx, frame.sy), ratio);
      const seenX = view.seenCells(frame.x, frame.sx, frame.usedX, layer.keys);
      view.drawTiles(surface, pyramid, level, origin, seenX, view.seenCells(frame.y, frame.sy, frame.usedY, layer.queries));
    } else {
      const picture = head.thumb();  // shown until the weights are read
      const place = [origin.left, origin.top, layer.keys * frame.sx, layer.queries * frame.sy];
      surface.image(picture, [0, 0, picture.width, picture.height], place);
    }
    drawSeparators(surface, frame);
  }

  function drawCross(surface, frame, { query, key }) {
    const { mark } = view.theme();
    const [x, y] = [frame.left + (key - frame.x) * frame.sx, frame.top + (query - frame.y) * frame.sy];
    const thin = Math.min(frame.sx, frame.sy) < 6;
    const band = (from, size) => (thin ? [from + size / 2 - 0.5, 1] : [from, size]);
    const [bandX, wide] = band(x, frame.sx);
    const [bandY, tall] = band(y, frame.sy);
    if (query !== null) surface.rect(frame.left, bandY, frame.usedX, tall, mark, thin ? 0.5 : 0.07);
    if (key !== null) surface.rect(bandX, frame.top, wide, frame.usedY, mark, thin ? 0.5 : 0.07);
    if (query === null || key === null) return;
    const size = Math.max(frame.sx, frame.sy, 7);
    const [cx, cy] = [x + frame.sx / 2, y + frame.sy / 2];
    const [w, h] = thin ? [size, size] : [frame.sx, frame.sy];
    surface.frame(cx - w / 2, cy - h / 2, w, h, mark, 2);
  }

  function paint(surface, frame) {
    const theme = view.theme();
    const point = view.point();
    const inside = () => {
      drawCells(surface, frame, view.head(), surface.ratio || 2);
      drawCross(surface, frame, point);
    };
    surface.clipped(frame.left, frame.top, frame.usedX, frame.usedY, inside);
    surface.frame(frame.left - 0.5, frame.top - 0.5, frame.usedX + 1, frame.usedY + 1, theme.rule);
    drawRows(surface, frame, point.query);
    drawColumns(surface, frame, point.key);
  }

  function refreshLegend() {
    const head = view.head();
    const byRow = view.state.scale === "row";
    const to = byRow ? "query’s largest weight" : number(head.largest);
    const bar = element("span", { class: "ramp", style: `--ramp:${[0, 0.25, 0.5, 0.75, 1].map(view.weightColour).join()}` });
    const hatched = element("span", { class: "swatch hidden" });
    legend.replaceChildren(element("span", {}, "0"), bar, element("span", {}, to), hatched, element("span", {}, "hidden"),
      element("span", { class: "quiet" }, "rows are queries, columns are keys"));
  }

  let frame = null;
  view.mapFrameShown = () => frame;

  view.views.push({
    id: "map", title: "Map", node, stage, aside: true, controls: ["layer", "heads", "scale", "zoom"],
    offered: () => true,
    needs: () => [view.head()],
    refresh() {
      frame = view.mapFrame(view.layer(), box.clientWidth, box.clientHeight);
      paint(new view.CanvasSurface(stage, frame.width, frame.height), frame);
      refreshLegend();
      const keys = "Arrow keys move the cell, plus and minus zoom; the table lists the query’s top keys.";
      stage.setAttribute("aria-label", `${this.caption()}. ${keys}`);
    },
    extent: () => ({ width: frame.left + frame.usedX + 8, height: frame.top + frame.usedY + 8 }),
    drawOn(surface) {
      paint(surface, frame);
    },
    caption: () => `Attention map of ${view.layer().name}, ${view.head().name}`,
    fileDetail: () => `${view.layer().path}-${view.head().number}`,
  });
})();

// Pointer, wheel, touch and keyboard input of the map.
(() => {
  "use strict";
  const view = window.attentiveView;
  const stage = view.views.find((each) => each.id === "map").stage;
  const frame = () => view.mapFrameShown();
  const pointers = new Map();  // pointers that are down, by id
  let moved = false;  // whether any has moved since the first went down

  function inStage(event) {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function hover(event) {
    const cell = view.cellAt(frame(), ...inStage(event));
    stage.style.cursor = cell ? "crosshair" : "default";
    view.setHover(cell ? cell.query : null, cell ? cell.key : null);
  }

  function pinch(before, now) {
    const other = [...pointers.values()].find((each) => each !== before);
    const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
    const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
    view.set({ at: view.zoomedAt(frame(), far(now, other) / far(before, other), ...middle) });
  }

  stage.addEventListener("pointerdown", (event) => {
    if (pointers.size === 0) moved = false;
    pointers.set(event.pointerId, inStage(event));
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return hover(event);
    const now = inStage(event);
    if (!moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4) return;
    moved = true;
    view.hover = null;
    if (pointers.size > 1) pinch(before, now);
    else if (view.state.at) view.set({ at: view.movedBy(frame(), now[0] - before[0], now[1] - before[1]) });
    pointers.set(event.pointerId, now);
  });
  const release = (event) => pointers.delete(event.pointerId);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener("pointerup", (event) => {
    release(event);
    if (moved) return;
    const cell = view.cellAt(frame(), ...inStage(event));
    const same = cell && cell.query === view.state.query && cell.key === view.state.key;
    view.set(cell && !same ? cell : { query: null, key: null });
  });
  stage.addEventListener("pointerleave", () => view.setHover(null, null));
  stage.addEventListener("dblclick", (event) => view.set({ at: view.zoomedAt(frame(), 2, ...inStage(event)) }));

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002));
    view.set({ at: view.zoomedAt(frame(), factor, ...inStage(event)) });
  }, { passive: false });

  // Zooms around the chosen cell if it is visible, otherwise around the centre.
  view.zoomMap = (factor) => {
    const { left, top, usedX, usedY, x, y, sx, sy } = frame();
    const { query, key } = view.state;
    const cell = query === null || key === null ? null : [left + (key + 0.5 - x) * sx, top + (query + 0.5 - y) * sy];
    const seen = cell && cell[0] > left && cell[0] < left + usedX && cell[1] > top && cell[1] < top + usedY;
    view.set({ at: view.zoomedAt(frame(), factor, ...(seen ? cell : [left + usedX / 2, top + usedY / 2])) });
  };

  function move(down, right) {
    const layer = view.layer();
    const { query, key } = view.state;
    const fresh = query === null || key === null;
    const to = {
      query: fresh ? (query ?? 0) : view.clamp(query + down, 0, layer.queries - 1),
      key: fresh ? (key ?? 0) : view.clamp(key + right, 0, layer.keys - 1),
    };
    view.hover = null;
    view.set({ ...to, at: view.showingCell(frame(), to.query, to.key) });
    view.tell(view.spokenCell(view.head(), to.query, to.key));
  }

  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const big = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowDown: () => move(big, 0), ArrowUp: () => move(-big, 0), ArrowRight: () => move(0, big), ArrowLeft: () => move(0, -big),
      Home: () => move(0, -1e9), End: () => move(0, 1e9), PageUp: () => move(-1e9, 0), PageDown: () => move(1e9, 0),
      "+": () => view.zoomMap(1.5), "=": () => view.zoomMap(1.5), "-": () => view.zoomMap(1 / 1.5), 0: () => view.set({ at: null }),
      Enter: () => view.set({ tab: "heads", heads: [view.state.head] }),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });
})();
