"use strict";
// What is chosen on the page, and what follows from it outside of the charts.
const page = (() => {
  const root = document.documentElement;
  const chosen = {};
  const listeners = [];

  const choose = (name, value) => {
    if (chosen[name] === value) return;
    chosen[name] = value;
    showChosen();
    listeners.forEach((listener) => listener(name));
  };

  // data-show="facet=0-1 heat=accuracy": seen only while all of that is chosen.
  const showChosen = () => {
    for (const element of document.querySelectorAll("[data-show]")) {
      element.hidden = !element.dataset.show.split(" ").every((wanted) => {
        const at = wanted.indexOf("=");
        const name = wanted.slice(0, at);
        return !(name in chosen) || chosen[name] === wanted.slice(at + 1);
      });
    }
  };

  const value = (control) =>
    control.matches("select") ? control.value : control.querySelector("input:checked").value;

  // Several controls of one name, as those of further axes, make up one value between them.
  const wireControls = () => {
    const names = new Map();
    for (const control of document.querySelectorAll("[data-chooses]")) {
      const name = control.dataset.chooses;
      names.set(name, [...(names.get(name) || []), control]);
    }
    for (const [name, controls] of names) {
      const read = () => choose(name, controls.map(value).join("-"));
      controls.forEach((control) => control.addEventListener("change", read));
      read();
    }
  };

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;

  const wireTheme = () => {
    const button = document.getElementById("theme");
    const tell = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colors`);
      listeners.forEach((listener) => listener("theme"));
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      tell();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
    let before;
    addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      tell();
    });
    addEventListener("afterprint", () => {
      if (before) root.dataset.theme = before;
      else delete root.dataset.theme;
      tell();
    });
    tell();
  };

  const figure = (row, column) => {
    const text = row.cells[column].dataset.value;
    return text === undefined || text === "" ? NaN : Number(text);
  };

  // What has no figure stays at the end, whichever way the rest is sorted.
  const inOrder = (column, sign) => (a, b) => {
    const [left, right] = [figure(a, column), figure(b, column)];
    if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
    return sign * (left - right);
  };

  const sort = (head) => {
    const table = head.closest("table");
    const rising = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    table.tBodies[0].append(...rows.sort(inOrder(head.cellIndex, rising ? 1 : -1)));
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where a page from a file may not, the old way still works.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  const wireCommands = () => {
    const line = document.getElementById("command");
    if (!line) return;
    const show = () => {
      const found = document.querySelector(`[data-cell="${chosen.cell}"]`);
      const text = found ? found.textContent : "No such cell: the study leaves it out.";
      // An option and its value stay on one line where there is room.
      line.replaceChildren(...text.split(/ (?=--)/).flatMap((part, index) => {
        const option = document.createElement("span");
        option.textContent = part;
        return index ? [" ", option] : [option];
      }));
    };
    listeners.push((name) => name === "cell" && show());
    show();
    const button = document.getElementById("copy");
    button.hidden = false;
    button.addEventListener("click", async () => {
      await copy(line.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  };

  const start = () => {
    for (const hidden of document.querySelectorAll("[data-script]")) hidden.hidden = false;
    wireControls();
    wireTheme();
    wireCommands();
    for (const button of document.querySelectorAll(".table thead button")) {
      button.addEventListener("click", () => sort(button.closest("th")));
    }
  };

  return { chosen, choose, start, listen: (listener) => listeners.push(listener) };
})();
