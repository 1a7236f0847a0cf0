// Implements the surface of surface.js as an SVG document, for export and for print.
(() => {
  "use strict";
  const view = window.attentiveView;
  const space = "http://www.w3.org/2000/svg";
  const round = (value) => String(Math.round(value * 100) / 100);

  function addHatch(svg, id) {
    const size = 6;
    const pattern = node("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse" });
    const d = `M-1,${size + 1}L${size + 1},-1M-1,1L1,-1M${size - 1},${size + 1}L${size + 1},${size - 1}`;
    pattern.append(node("path", { d, stroke: view.theme().hatch, "stroke-width": 1 }));
    const definitions = node("defs", {});
    definitions.append(pattern);
    svg.append(definitions);
  }

  function node(name, attributes) {
    const made = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, typeof value === "number" ? round(value) : value);
    return made;
  }

  // XML does not allow these characters, not even escaped.
  const withoutControls = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

  let hatches = 0;  // each document's pattern has its own id, because a page may contain several
  view.SvgSurface = class {
    constructor(width, height, title) {
      Object.assign(this, { width, height, hatchId: `hatch${++hatches}`, clips: 0 });
      this.svg = node("svg", { xmlns: space, width, height, viewBox: `0 0 ${round(width)} ${round(height)}` });
      this.svg.setAttribute("font-family", view.fontFamily);
      const name = node("title", {});
      name.textContent = withoutControls(title);
      this.svg.append(name);
      addHatch(this.svg, this.hatchId);
      this.at = this.svg;
      this.rect(0, 0, width, height, view.theme().paper);
    }

    rect(x, y, width, height, fill, alpha = 1) {
      this.at.append(node("rect", { x, y, width, height, fill, ...(alpha < 1 ? { "fill-opacity": alpha } : {}) }));
    }

    frame(x, y, width, height, stroke, thickness = 1) {
      this.at.append(node("rect", { x, y, width, height, fill: "none", stroke, "stroke-width": thickness }));
    }

    hatch(x, y, width, height) {
      this.rect(x, y, width, height, `url(#${this.hatchId})`);
    }

    text(x, y, text, { size = 13, fill, align = "left", bold = false, turn = 0, room = Infinity }) {
      const anchors = { left: "start", right: "end", center: "middle" };
      const made = node("text", { x, y, fill, "font-size": size, "text-anchor": anchors[align], "dominant-baseline": "central" });
      if (bold) made.setAttribute("font-weight", "600");
      if (turn !== 0) made.setAttribute("transform", `rotate(${round(turn)} ${round(x)} ${round(y)})`);
      made.textContent = withoutControls(view.shorten(text, room, view.ruler(size, bold)));
      if (made.textContent.endsWith("…") && room < Infinity) {
        const whole = node("title", {});
        whole.textContent = withoutControls(text);
        made.append(whole);
      }
      this.at.append(made);
    }

    curves(flat, colour) {
      const group = node("g", { fill: "none", stroke: colour });
      for (let n = 0; n < flat.length; n += 5) {
        const [x1, y1, x2, y2, strength] = flat.slice(n, n + 5);
        const [width, alpha] = view.lineLook(strength);
        const middle = round((x1 + x2) / 2);
        const d = `M${round(x1)},${round(y1)}C${middle},${round(y1)},${middle},${round(y2)},${round(x2)},${round(y2)}`;
        group.append(node("path", { d, "stroke-width": width, "stroke-opacity": alpha }));
      }
      this.at.append(group);
    }

    image(source, from, to, { alpha = 1, smooth = false } = {}) {
      const part = document.createElement("canvas");
      [part.width, part.height] = [Math.max(1, Math.round(from[2])), Math.max(1, Math.round(from[3]))];
      part.getContext("2d").drawImage(source, ...from, 0, 0, part.width, part.height);
      const [x, y, width, height] = to;
      const made = node("image", { x, y, width, height, href: part.toDataURL("image/png"), preserveAspectRatio: "none" });
      if (alpha < 1) made.setAttribute("opacity", round(alpha));
      if (!smooth) made.setAttribute("style", "image-rendering:pixelated");
      this.at.append(made);
    }

    clipped(x, y, width, height, draw) {
      const id = `${this.hatchId}clip${++this.clips}`;
      const path = node("clipPath", { id });
      path.append(node("rect", { x, y, width, height }));
      const group = node("g", { "clip-path": `url(#${id})` });
      const outer = this.at;
      outer.append(path, group);
      this.at = group;
      draw();
      this.at = outer;
    }

    toString() {
      return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(this.svg);
    }
  };
})();
