/* The partition figure: its drawings are fetched as SVG; on Explore a click on any of their marks selects everywhere. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const latest = {}; // what each drawing was last asked for

  ns.draw = async function draw(id, address) {
    const root = document.getElementById(id);
    if (!root || (latest[id]?.address === address && root.firstElementChild)) return;
    latest[id]?.control.abort();
    const asked = (latest[id] = { address, control: new AbortController() });
    if (!address) return root.replaceChildren();
    try {
      const answer = await fetch(address, { signal: asked.control.signal });
      const text = await answer.text();
      if (latest[id] !== asked) return;
      if (!answer.ok) throw new Error(text.replace(/<[^>]*>/g, " ").trim());
      root.replaceChildren(document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true));
      root.dataset.drawn = address;
      ns.lightPartition(ns.selected || {});
    } catch (error) {
      if (error.name !== "AbortError" && latest[id] === asked) root.textContent = `The figure could not be loaded: ${error.message}`;
    }
  };

  ns.drawPartition = function (query, selection) {
    const lane = selection.device == null ? "" : `&device=${selection.device}`;
    if (!query) ns.draw("strategies-drawing", "");
    return ns.draw("partition-drawing", query && `partition.svg?${query}${lane}`);
  };

  ns.drawStrategies = function (query) {
    latest["strategies-drawing"] = null; // the same address draws more strategies than before
    ns.draw("strategies-drawing", query && `strategies.svg?${query}`);
  };

  /* Light up the selected layers and device, dim the rest. */
  ns.lightPartition = function (selection) {
    ns.selected = selection;
    const layers = selection.layers ? new Set(selection.layers) : selection.layer != null ? new Set([selection.layer]) : null;
    for (const drawing of document.querySelectorAll(".drawn")) {
      drawing.classList.toggle("has-layers", !!layers);
      drawing.classList.toggle("has-device", selection.device != null);
      for (const mark of drawing.querySelectorAll("[data-layers]"))
        mark.classList.toggle("lit", !!layers && mark.dataset.layers.split(" ").some((layer) => layers.has(+layer)));
      for (const mark of drawing.querySelectorAll("[data-devices]"))
        mark.classList.toggle("lit", selection.device != null && mark.dataset.devices.split(" ").includes(String(selection.device)));
    }
    for (const net of document.querySelectorAll(".nets .pick"))
      net.closest("tr").classList.toggle("lit", !!selection.layers && net.dataset.layers === selection.layers.join(" "));
  };

  document.addEventListener("click", (event) => {
    const device = event.target.closest("#partition [data-device]");
    const mark = event.target.closest(":is(#partition, #nets) [data-layers]");
    if (device) ns.select({ device: +device.dataset.device });
    else if (mark) {
      const layers = mark.dataset.layers.split(" ").map(Number);
      const again = ns.selected?.layers?.join(" ") === layers.join(" ");
      ns.select(again ? {} : { layers, layer: layers.length === 1 ? layers[0] : null });
    }
  });

  /* A card's drawings under each other as one file with its own styles, light. */
  function picture(card) {
    const drawings = [...document.querySelectorAll(`#${card} .drawn`)];
    const heights = drawings.map((drawing) => drawing.viewBox.baseVal.height);
    const style = [...document.styleSheets].flatMap((sheet) => {
      try {
        return [...sheet.cssRules].map((rule) => rule.cssText).filter((text) => text.includes(".drawn") && !text.includes("scheme"));
      } catch {
        return [];
      }
    }).join("");
    const title = document.querySelector(`#${card} .card-title`).textContent;
    const said = { fill: "#1f2430", "font-family": "system-ui, sans-serif" };
    const words = [[24, 26, "start", 16, 700, (card === "partition" && ns.words) || title], [1076, 26, "end", 14, 700, "Shardscope"]].map(([x, y, anchor, size, weight, text]) => {
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "text");
      for (const [name, value] of Object.entries({ ...said, x, y, "text-anchor": anchor, "font-size": size, "font-weight": weight })) mark.setAttribute(name, value);
      mark.textContent = text;
      return new XMLSerializer().serializeToString(mark);
    });
    let top = 40;
    const parts = drawings.map((drawing, i) => {
      const part = drawing.cloneNode(true);
      part.setAttribute("y", top);
      part.setAttribute("width", 1100);
      part.setAttribute("height", heights[i]);
      top += heights[i];
      return new XMLSerializer().serializeToString(part);
    });
    return [`<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="${(12 / 11) * top}" viewBox="0 0 1100 ${top}"><style>${style.replaceAll("<", "")}</style><rect width="1100" height="${top}" fill="#fff"/>${words.join("")}${parts.join("")}</svg>`, top];
  }

  ns.exportDrawing = async function (card, format) {
    const [address, query] = document.querySelector(`#${card} .drawing`).dataset.drawn.split("?");
    if (format === "csv") return (window.location.href = `export/${address.replace(".svg", ".csv")}?${query}`);
    const [text, height] = picture(card);
    if (format === "svg") return ns.download(`${card}.svg`, text, "image/svg+xml");
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2400, height: (24 / 11) * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2400, (24 / 11) * height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((blob) => ns.download(`${card}.png`, blob, "image/png"));
  };
})();
