// Keeps the numbers of a page current. Everything works without it: the page
// then loads itself again.
"use strict";

const live = document.querySelector("[data-live]");
if (live) {
  const button = document.querySelector("[data-pause]");
  let paused = false;
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Go on" : "Pause";
      button.setAttribute("aria-pressed", String(paused));
    });
  }
  // show puts an answer in place; true when the page is loaded again instead.
  const show = (answer, text) => {
    if (answer.status === 401) {
      location.reload();
      return true;
    }
    if (answer.ok) {
      live.innerHTML = text; // escaped by the server
      if (live.querySelector("[data-ended]")) {
        location.reload(); // what came of it
        return true;
      }
      live.dataset.looks = String(Number(live.dataset.looks || 0) + 1);
    }
    live.classList.toggle("stale", !answer.ok);
    return false;
  };
  const refresh = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(live.dataset.live, {credentials: "same-origin"});
        const text = await answer.text();
        // Once it is paused nothing moves, also not by what was asked for before.
        if (!paused && show(answer, text)) {
          return;
        }
      } catch {
        live.classList.add("stale"); // the process is away: the next look may find it
      }
    }
    setTimeout(refresh, 2000);
  };
  setTimeout(refresh, 1500);
}

const all = document.querySelector("[data-all]");
if (all) {
  all.hidden = false;
  all.addEventListener("click", () => {
    const boxes = [...document.querySelectorAll("input[name=id]")];
    const tick = boxes.some((box) => !box.checked);
    boxes.forEach((box) => { box.checked = tick; });
  });
}
