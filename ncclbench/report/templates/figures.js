// Figures: what Python laid out, in the page's colours, for the operation and the option chosen.

const touched = matchMedia("(pointer: coarse)").matches;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Every "var(--name)" in a figure becomes the colour it has in the page now.
function coloured(value) {
  if (typeof value === "string") return value.startsWith("var(") ? css(value.slice(4, -1)) : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, below]) => [key, coloured(below)]));
}

function pageLayout() {
  const axis = {
    gridcolor: css("--line"), linecolor: css("--line"), zerolinecolor: css("--muted"), zeroline: false,
    automargin: true, title: { font: { size: 12 }, standoff: 8 }, fixedrange: touched,
  };
  return {
    paper_bgcolor: css("--ground"), plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--muted") },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    xaxis: axis, yaxis: axis, hovermode: "closest",
    hoverlabel: { bgcolor: css("--surface"), bordercolor: css("--line"), font: { color: css("--ink") }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--ink") },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { color: css("--ink") } },
  };
}

function merged(base, more) {
  const result = { ...base };
  for (const [key, value] of Object.entries(more)) {
    const both = value && base[key] && typeof value === "object" && !Array.isArray(value);
    result[key] = both ? merged(base[key], value) : value;
  }
  return result;
}

const plotConfig = {
  // Under a finger dragging scrolls the page, and the bar of tools would hide the legend.
  displayModeBar: touched ? false : "hover",
  displaylogo: false, showSendToCloud: false, showEditInChartStudio: false,
};

// The family of figures that do not follow the selection.
const everything = { key: "", op: "", label: "" };

class FigureView {
  constructor(element, figure) {
    this.element = element;
    this.figure = figure;
    this.plot = element.querySelector(".plot");
    this.select = element.querySelector("select");
    // Never another one: Plotly.react makes a plot of another configuration anew, later, and two such that
    // wait for each other go on for ever. So the file's name is asked for when the button is pressed.
    const download = {
      name: "png", title: "Download plot as a PNG", icon: Plotly.Icons.camera,
      click: () => Plotly.downloadImage(this.plot, { format: "png", filename: this.fileName(), scale: 2 }),
    };
    this.config = { ...plotConfig, modeBarButtons: [[download, "zoom2d", "pan2d", "resetScale2d"]] };
    this.select.addEventListener("change", () => {
      this.chosen = this.select.value;
      this.draw();
    });
  }

  // Whether it shows the same whatever is chosen.
  get isFixed() {
    return everything.key in this.figure.plots;
  }

  show(family) {
    this.family = family;
    const options = Object.keys(this.figure.plots[family.key] || {});
    this.select.replaceChildren(...options.map((option) => new Option(option, option)));
    if (options.includes(this.chosen)) this.select.value = this.chosen;
    this.select.parentElement.hidden = options.length < 2;
    this.draw();
  }

  draw() {
    const option = this.select.value;
    const plot = (this.figure.plots[this.family.key] || {})[option];
    const title = `${this.family.op} ${this.family.label}`.trim();
    this.element.hidden = !plot;
    if (!plot) return;
    const words = this.select.parentElement.hidden ? [title, option] : [title];
    this.element.querySelector(".shown").textContent = words.filter(Boolean).join(", ");
    this.element.querySelector(".note").textContent = plot.note;
    this.plot.setAttribute("aria-label", `${this.figure.alt}: ${[title, option].filter(Boolean).join(", ")}`);
    const data = plot.data.map((trace, at) => (at ? trace : { ...this.figure.shared, ...trace }));
    const size = { width: this.plot.clientWidth, height: this.plot.clientHeight };
    this.width = size.width;
    Plotly.react(this.plot, coloured(data), merged({ ...pageLayout(), ...size }, coloured(plot.layout)), this.config);
  }

  // Of words that may be anything: an imported operation is another tool's text.
  fileName() {
    return [this.element.dataset.figure, this.family.op].filter(Boolean).join("-").replace(/[^\w.-]+/g, "-");
  }

  fit() {
    if (this.plot.clientWidth !== this.width) this.draw();
  }
}

// The selection bar: one chip per operation, one list of the operation's variants.
class Selection {
  constructor(families, changed) {
    this.families = families;
    this.changed = changed;
    const bar = document.getElementById("selection");
    const ops = [...new Set(families.map((family) => family.op))];
    this.variant = bar.querySelector("select");
    for (const op of ops) {
      const input = Object.assign(document.createElement("input"), { type: "radio", name: "op", value: op });
      const label = document.createElement("label");
      const word = Object.assign(document.createElement("span"), { textContent: op });
      input.checked = op === ops[0];
      input.addEventListener("change", () => this.choose(op));
      label.append(input, word);
      bar.querySelector(".chips").append(label);
    }
    this.variant.addEventListener("change", () => this.changed(this.current()));
    bar.hidden = families.length < 2;
    this.choose(ops[0]);
  }

  current() {
    return this.families.find((family) => family.key === this.variant.value);
  }

  choose(op) {
    const before = this.current();
    const own = this.families.filter((family) => family.op === op);
    this.variant.replaceChildren(...own.map((family) => new Option(family.label, family.key)));
    const alike = own.find((family) => before && family.label === before.label);
    if (alike) this.variant.value = alike.key;
    this.variant.hidden = own.length < 2;
    this.changed(this.current());
  }
}

async function startFigures() {
  const elements = [...document.querySelectorAll("[data-figure]")];
  let drawing;
  try {
    drawing = JSON.parse(await unpacked("drawing"));
    await loadPlotly();
  } catch {
    for (const element of elements) {
      const plot = element.querySelector(".plot");
      plot.classList.add("message");
      plot.textContent = "This browser cannot unpack the figures. Every number is in the table of all rows.";
    }
    return;
  }
  const views = elements.map((element) => new FigureView(element, drawing.figures[element.dataset.figure]));
  const fixed = views.filter((view) => view.isFixed);
  const following = views.filter((view) => !view.isFixed);
  fixed.forEach((view) => view.show(everything));
  const drawable = drawing.families.filter((family) => following.some((view) => view.figure.plots[family.key]));
  const shown = drawable.length ? views : fixed;
  if (!shown.length) return;
  if (drawable.length) new Selection(drawable, (family) => following.forEach((view) => view.show(family)));
  document.addEventListener("themechange", () => shown.forEach((view) => view.draw()));
  let resizing;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => shown.forEach((view) => view.fit()), 100);
  });
}
