// Decodes the formats in which numbers are embedded in the page: base 64, base 91, little-endian arrays, raw
// DEFLATE.
(() => {
  "use strict";
  const view = window.attentiveView;
  const slice = 1 << 18;  // characters decoded at a time; a multiple of 4 and of 16

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

  // numbers("…", "Float32") decodes with the DataView reader of that type, whatever the machine's byte order
  // is.
  view.numbers = (text, kind) => {
    const bytes = view.bytes(text);
    const arrays = { Float32: Float32Array, Int32: Int32Array, Uint16: Uint16Array, Uint32: Uint32Array };
    const out = new arrays[kind](bytes.length / arrays[kind].BYTES_PER_ELEMENT);
    const reader = new DataView(bytes.buffer);
    for (let n = 0; n < out.length; n++) out[n] = reader["get" + kind](n * out.BYTES_PER_ELEMENT, true);
    return out;
  };

  // Two characters hold 13 bits, the lower digit in base 91 first, beginning with the lowest bit, so 16
  // characters are 13 bytes. A single character at the end holds 6 bits.
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

  // Floats stored as byte planes: first the highest byte of all floats, then the next ones.
  view.floatsOfPlanes = (bytes) => {
    const count = bytes.length / 4;
    const words = new Uint32Array(count);
    for (let n = 0; n < bytes.length; n++) words[n % count] = (words[n % count] << 8) | bytes[n];
    return new Float32Array(words.buffer);
  };

  // Variable-length integers: seven bits a byte, lowest first; the top bit is set if more bytes follow.
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

  // Inflates the raw DEFLATE bytes that `decode` reads from a text.
  view.inflate = async (text, decode) => {
    const stream = new DecompressionStream("deflate-raw");
    const writing = feed(text, decode, stream.writable.getWriter());
    writing.catch(() => {});  // the reader below reports the same error
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
