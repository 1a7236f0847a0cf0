// Base64, little-endian arrays and raw DEFLATE: how numbers lie in the page.
(() => {
  "use strict";
  const view = window.attentiveView;
  const slice = 1 << 18; // characters decoded at a time; a multiple of four

  function decodePart(text, from, to, out, at) {
    const part = atob(text.slice(from, to));
    for (let n = 0; n < part.length; n++) out[at + n] = part.charCodeAt(n);
    return part.length;
  }

  function decodedSize(text) {
    const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
    return (text.length / 4) * 3 - padding;
  }

  view.bytes = (text) => {
    const out = new Uint8Array(decodedSize(text));
    let at = 0;
    for (let from = 0; from < text.length; from += slice) at += decodePart(text, from, from + slice, out, at);
    return out;
  };

  // numbers("…", "Float32"): the DataView reader of that name, whatever the byte order of the machine.
  view.numbers = (text, kind) => {
    const bytes = view.bytes(text);
    const arrays = { Float32: Float32Array, Int32: Int32Array, Uint16: Uint16Array, Uint32: Uint32Array };
    const out = new arrays[kind](bytes.length / arrays[kind].BYTES_PER_ELEMENT);
    const reader = new DataView(bytes.buffer);
    for (let n = 0; n < out.length; n++) out[n] = reader["get" + kind](n * out.BYTES_PER_ELEMENT, true);
    return out;
  };

  async function feed(text, writer) {
    for (let from = 0; from < text.length; from += slice) await writer.write(view.bytes(text.slice(from, from + slice)));
    await writer.close();
  }

  // The `size` bytes of base64 of raw DEFLATE; an error if they are more or fewer.
  view.inflate = async (text, size) => {
    const stream = new DecompressionStream("deflate-raw");
    const writing = feed(text.trim(), stream.writable.getWriter());
    writing.catch(() => {}); // the reader below meets the same error
    const out = new Uint8Array(size);
    const reader = stream.readable.getReader();
    let at = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (at + part.value.length > size) throw new Error(`expected ${size} bytes of weights, found more`);
      out.set(part.value, at);
      at += part.value.length;
    }
    if (at !== size) throw new Error(`expected ${size} bytes of weights, found ${at}`);
    return out;
  };
})();
