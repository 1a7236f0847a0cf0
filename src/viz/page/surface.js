// The surface on which views draw: a canvas here, an SVG below. Both offer rect, frame, hatch,
// text, curve, image and clipped.
(() => {
  "use strict";
  const view = window.attentiveView;
  const family = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
  view.fontFamily = family;

  const patterns = new Map();
  function hatchPattern(context, ratio) {
    const name = view.theme().hatch + ratio;
    if (!patterns.has(name)) {
      const size = Math.round(6 * ratio);
      const tile = document.createElement("canvas");
      tile.width = tile.height = size;
      const pen = tile.getContext("2d");
      pen.strokeStyle = view.theme().hatch;
      pen.lineWidth = ratio;
      pen.beginPath();
      for (const shift of [-size, 0, size]) {
        pen.moveTo(shift - 1, size + 1);
        pen.lineTo(shift + size + 1, -1);
      }
      pen.stroke();
      patterns.set(name, tile);
    }
    const pattern = context.createPattern(patterns.get(name), "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern;
  }

  view.CanvasSurface = class {
    // Sets the canvas to the screen's resolution and clears it.
    constructor(canvas, width, height) {
      const ratio = window.devicePixelRatio || 1;
      const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
      if (canvas.width !== w || canvas.height !== h) {
        [canvas.width, canvas.height] = [w, h];
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      Object.assign(this, { width, height, ratio, pen: canvas.getContext("2d") });
      this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.pen.fillStyle = view.theme().paper;
      this.pen.fillRect(0, 0, width, height);
    }

    rect(x, y, width, height, fill, alpha = 1) {
      this.pen.globalAlpha = alpha;
      this.pen.fillStyle = fill;
      this.pen.fillRect(x, y, width, height);
      this.pen.globalAlpha = 1;
    }

    frame(x, y, width, height, stroke, thickness = 1) {
      this.pen.strokeStyle = stroke;
      this.pen.lineWidth = thickness;
      this.pen.strokeRect(x, y, width, height);
    }

    hatch(x, y, width, height) {
      this.pen.fillStyle = hatchPattern(this.pen, this.ratio);
      this.pen.fillRect(x, y, width, height);
    }

    // align: left, right or center. turn: degrees of rotation about (x, y), the middle of the line.
    text(x, y, text, { size = 13, fill, align = "left", bold = false, turn = 0, room = Infinity }) {
      const pen = this.pen;
      pen.font = `${bold ? 600 : 400} ${size}px ${family}`;
      pen.fillStyle = fill;
      pen.textAlign = align;
      pen.textBaseline = "middle";
      const shown = view.shorten(text, room, pen);
      if (turn === 0) {
        const half = align === "center" ? pen.measureText(shown).width / 2 : 0; // a centred text stays on the canvas
        return pen.fillText(shown, Math.max(half, Math.min(x, this.width - half)), y);
      }
      pen.save();
      pen.translate(x, y);
      pen.rotate((turn * Math.PI) / 180);
      pen.fillText(shown, 0, 0);
      pen.restore();
    }

    // Draws lines from left to right in one colour: [x1, y1, x2, y2, strength 0..1, …], in 12 steps of
    // strength.
    curves(flat, colour) {
      const groups = Array.from({ length: 12 }, () => new Path2D());
      for (let n = 0; n < flat.length; n += 5) {
        const path = groups[Math.min(11, Math.floor(flat[n + 4] * 12))];
        const middle = (flat[n] + flat[n + 2]) / 2;
        path.moveTo(flat[n], flat[n + 1]);
        path.bezierCurveTo(middle, flat[n + 1], middle, flat[n + 3], flat[n + 2], flat[n + 3]);
      }
      this.pen.strokeStyle = colour;
      groups.forEach((path, n) => {
        [this.pen.lineWidth, this.pen.globalAlpha] = view.lineLook((n + 0.5) / 12);
        this.pen.stroke(path);
      });
      this.pen.globalAlpha = 1;
    }

    // Draws the part (sx, sy, sw, sh) of a canvas or picture; pixels stay sharp unless `smooth`.
    image(source, from, to, { alpha = 1, smooth = false } = {}) {
      this.pen.imageSmoothingEnabled = smooth;
      this.pen.globalAlpha = alpha;
      this.pen.drawImage(source, ...from, ...to);
      this.pen.globalAlpha = 1;
    }

    clipped(x, y, width, height, draw) {
      this.pen.save();
      this.pen.beginPath();
      this.pen.rect(x, y, width, height);
      this.pen.clip();
      draw();
      this.pen.restore();
    }
  };

  // The width and opacity of a line.
  view.lineLook = (strength) => [0.8 + 3.2 * strength, 0.3 + 0.7 * Math.sqrt(strength)];

  let ruler = null;
  const measured = new Map();  // by font, room and text, because every frame draws the same labels

  // The text, cut and ended with … if it is wider than `room` pixels.
  view.shorten = (text, room, pen) => {
    if (room === Infinity) return view.isolate(text);
    const name = `${pen.font}|${Math.round(room)}|${text}`;
    if (measured.size > 20000) measured.clear();
    if (!measured.has(name)) measured.set(name, view.isolate(cut(text, room, pen)));
    return measured.get(name);
  };

  // Isolates text of right-to-left scripts, as <bdi> does, by Unicode's marks, which canvases and SVG
  // support.
  view.isolate = (text) => (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(text) ? `\u2068${text}\u2069` : text);

  function cut(text, room, pen) {
    if (pen.measureText(text).width <= room) return text;
    const parts = view.graphemes(text);
    let [low, high] = [0, parts.length];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(parts.slice(0, middle).join("") + "…").width <= room) low = middle;
      else high = middle - 1;
    }
    return parts.slice(0, low).join("") + "…";
  }

  const segmenter = window.Intl && Intl.Segmenter ? new Intl.Segmenter() : null;
  view.graphemes = (text) => (segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text));

  view.textWidth = (text, size) => {
    ruler ||= document.createElement("canvas").getContext("2d");
    ruler.font = `400 ${size}px ${family}`;
    return ruler.measureText(text).width;
  };
  view.ruler = (size, bold) => {
    view.textWidth("", size);
    ruler.font = `${bold ? 600 : 400} ${size}px ${family}`;
    return ruler;
  };
})();

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

// Copies text to the clipboard, and saves files.
(() => {
  "use strict";
  const view = window.attentiveView;

  // In some browsers, pages from disk are not a secure context; there, text can be copied from a selected
  // text area.
  function copyBySelection(text) {
    const area = view.element("textarea", { class: "unseen", "aria-hidden": "true" });
    const focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused) focused.focus();
    return done;
  }

  view.copyText = async (text, what) => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = copyBySelection(text);
    }
    view.notice(done ? `${what} copied` : "this browser does not let the page copy; select the table instead");
  };

  view.download = (name, type, text) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = view.element("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    view.notice(`${name} saved`);
  };
})();

// Draws the current view as an SVG document, for a file and for printing in place of the canvas. All scripts
// of the page share the global object attentiveView, because modules do not load from disk.
(() => {
  "use strict";
  const view = window.attentiveView;

  const fileName = (text) => text.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^-+|-+$/g, "") || "attention";

  // A view states its extent, { width, height }, and draws itself on a surface of that size.
  view.svgOf = (shown) => {
    const { width, height } = shown.extent();
    const surface = new view.SvgSurface(width, height, `${view.data.title}: ${shown.caption()}`);
    shown.drawOn(surface);
    return surface;
  };

  view.exportSvg = () => {
    const shown = view.shownView();
    const name = fileName([view.data.title, shown.id, shown.fileDetail()].filter(Boolean).join("-"));
    view.download(`${name}.svg`, "image/svg+xml", view.svgOf(shown).toString());
  };

  let figure = null;
  function beforePrint() {
    const shown = view.shownView();
    afterPrint();
    const drawing = view.withPrintColours(() => {
      view.refreshDetails();
      return view.svgOf(shown).svg;
    });
    figure = view.element("figure", { class: "printed" }, view.element("figcaption", {}, shown.caption()));
    figure.append(drawing);
    document.querySelector("main").prepend(figure);
  }
  function afterPrint() {
    if (!figure) return;
    figure.remove();
    figure = null;
    view.redraw();
  }

  view.watchPrint = () => {
    window.addEventListener("beforeprint", beforePrint);
    window.addEventListener("afterprint", afterPrint);
  };
})();
