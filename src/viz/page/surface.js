// The surface on which views draw: a canvas here, an SVG in surface_svg.js. Both offer rect, frame, hatch,
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
