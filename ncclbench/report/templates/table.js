// The table of all rows: sort by a column, filter by words, download.

function startTable() {
  const table = document.getElementById("rows");
  if (!table) return;
  const data = JSON.parse(document.getElementById("rows-data").textContent);
  const rows = data.values.map((values) => Object.fromEntries(data.keys.map((key, at) => [key, values[at]])));
  const body = table.tBodies[0];
  const lines = [...body.rows].map((element, at) => ({ element, row: rows[at], text: element.textContent.toLowerCase() }));

  for (const head of table.tHead.rows[0].cells) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      lines.sort((one, two) => compared(one.row[head.dataset.key], two.row[head.dataset.key], descending));
      body.append(...lines.map((line) => line.element));
    });
  }

  const filter = document.getElementById("filter");
  const matches = document.getElementById("matches");
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const line of lines) {
      const fits = words.every((word) => line.text.includes(word));
      line.element.hidden = !fits;
      shown += fits;
    }
    matches.textContent = `${shown.toLocaleString("en")} of ${lines.length.toLocaleString("en")} rows`;
  };
  filter.addEventListener("input", apply);
  apply();

  for (const [id, type, text] of [
    ["csv", "text/csv", () => asCsv(data)],
    ["json", "application/json", () => JSON.stringify(rows, null, 1)],
  ]) {
    const button = document.getElementById(id);
    button.addEventListener("click", () => save(button.dataset.file, type, text()));
  }
}

// Rows without a value come last, whichever way the others go.
function compared(one, two, descending) {
  if (one === null || two === null) return (one === null) - (two === null);
  const order = typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two));
  return descending ? -order : order;
}

function asCsv(data) {
  const cell = (value) => {
    if (value === null) return "";
    // A text that a spreadsheet would run as a formula gets a quote in front.
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [data.keys, ...data.values].map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
