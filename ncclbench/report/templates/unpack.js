// Unpacking: base85 text to bytes, gzip to the text that was packed.


const BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

function decodeBase85(text) {
  const digits = new Uint8Array(128);
  for (let digit = 0; digit < 85; digit++) digits[BASE85.charCodeAt(digit)] = digit;
  const bytes = new Uint8Array(Math.ceil(text.length / 5) * 4);
  for (let from = 0, to = 0; from < text.length; from += 5, to += 4) {
    let word = 0;
    for (let next = from; next < from + 5; next++) {
      word = word * 85 + (next < text.length ? digits[text.charCodeAt(next)] : 84);
    }
    bytes[to] = word >>> 24;
    bytes[to + 1] = word >>> 16;
    bytes[to + 2] = word >>> 8;
    bytes[to + 3] = word;
  }
  return bytes.subarray(0, Math.floor(text.length * 4 / 5));
}

// The text that was packed into the script element of that id.
function unpacked(id) {
  const stream = new Blob([decodeBase85(document.getElementById(id).textContent)]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
}

async function loadPlotly() {
  const script = document.createElement("script");
  script.nonce = document.getElementById("plotlyjs").nonce;
  script.textContent = await unpacked("plotlyjs");
  document.head.append(script);
  if (!globalThis.Plotly) throw new Error("plotly.js did not start");
}
