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
