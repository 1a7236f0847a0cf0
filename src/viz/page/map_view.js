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
