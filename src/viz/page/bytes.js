// Base64, base 91, little-endian arrays and raw DEFLATE: how numbers lie in the page.
(() => {
  "use strict";
  const view = window.attentiveView;
  const slice = 1 << 18; // characters decoded at a time; a multiple of 4 and of 16

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

  // 13 bits in two characters, the lower of 91 first and the lowest bit first: 16 characters are 13 bytes. A single one at the end
  // holds 6 bits.
  const digitOf = (code) => code - (code < 60 ? 33 : 34);
  view.bytes91 = (text) => {
    const pairs = text.length >> 1;
    const out = new Uint8Array((pairs * 13 + (text.length % 2) * 6) >> 3);
    let [at, bits, count] = [0, 0, 0];
    for (let n = 0; n < text.length; n += 2) {
      const whole = n + 1 < text.length;
      bits |= (digitOf(text.charCodeAt(n)) + (whole ? 91 * digitOf(text.charCodeAt(n + 1)) : 0)) << count;
      count += whole ? 13 : 6;
      for (; count >= 8; count -= 8, bits >>>= 8) out[at++] = bits;
    }
    return out;
  };

  // Floats of which the highest bytes come first, then the next ones.
  view.floatsOfPlanes = (bytes) => {
    const count = bytes.length / 4;
    const words = new Uint32Array(count);
    for (let n = 0; n < bytes.length; n++) words[n % count] = (words[n % count] << 8) | bytes[n];
    return new Float32Array(words.buffer);
  };

  // Numbers of seven bits a byte, the lowest first; the top bit is set where more follow.
  view.varints = (bytes) => {
    const out = [];
    let [value, factor] = [0, 1];
    for (const byte of bytes) {
      value += (byte & 127) * factor;
      factor *= 128;
      if (byte > 127) continue;
      out.push(value);
      [value, factor] = [0, 1];
    }
    return out;
  };

  async function feed(text, decode, writer) {
    for (let from = 0; from < text.length; from += slice) await writer.write(decode(text.slice(from, from + slice)));
    await writer.close();
  }

  // The bytes of raw DEFLATE that `decode` reads from a text.
  view.inflate = async (text, decode) => {
    const stream = new DecompressionStream("deflate-raw");
    const writing = feed(text, decode, stream.writable.getWriter());
    writing.catch(() => {}); // the reader below meets the same error
    const reader = stream.readable.getReader();
    const parts = [];
    let total = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      total += part.value.length;
    }
    const out = new Uint8Array(total);
    let at = 0;
    for (const part of parts) {
      out.set(part, at);
      at += part.length;
    }
    return out;
  };
})();
