// The page: light and dark, and what starts when.

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function shownTheme() {
  return root.dataset.theme || (systemDark.matches ? "dark" : "light");
}

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  labelTheme();
  document.dispatchEvent(new Event("themechange"));
}

function labelTheme() {
  document.getElementById("theme").textContent = shownTheme() === "dark" ? "Light" : "Dark";
}

function start() {
  root.classList.add("scripted");
  labelTheme();
  document.getElementById("theme").addEventListener("click", () => setTheme(shownTheme() === "dark" ? "light" : "dark"));
  systemDark.addEventListener("change", () => setTheme(root.dataset.theme));
  const data = JSON.parse(document.getElementById("data").textContent);
  startTable(data);
  startFigures(data).then(() => { root.dataset.drawn = Math.round(performance.now()); });
}

start();
