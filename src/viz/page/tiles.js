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
