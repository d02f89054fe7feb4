// The page: light and dark, and what starts when.

const root = document.documentElement;
// The theme to go back to after printing, which is always light.
let themeBefore;
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
  addEventListener("beforeprint", () => {
    themeBefore = root.dataset.theme;
    root.classList.add("printing");
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    setTheme(themeBefore);
  });
  startTable();
  startFigures().then(() => { root.dataset.drawn = Math.round(performance.now()); });
}

start();
