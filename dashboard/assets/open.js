/* Files that are dropped anywhere, or chosen under Open: the server takes them together, and says what they are. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const MOST_BYTES = 20e6;

  const read = (file) => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name: file.name, content: reader.result });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

  /* The files of what was dropped; of a folder those that stand in it. */
  async function filesOf(entry, file) {
    if (!entry) return [file];
    if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
    const reader = entry.createReader(), inside = [];
    for (let some = [null]; some.length; inside.push(...some)) some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    return (await Promise.all(inside.filter((each) => each.isFile).map((each) => filesOf(each)))).flat();
  }

  async function answered(files) {
    const bytes = files.reduce((sum, file) => sum + file.size, 0);
    if (bytes > MOST_BYTES) throw new Error(`${(bytes / 1e6).toFixed(0)} MB are more than ${MOST_BYTES / 1e6} MB: \`shardscope check\` reads traces of any size`);
    const { pathname: path, search: query } = window.location;
    const answer = await ns.post("open", { path, query, files: await Promise.all(files.map(read)) });
    if (answer.failed) throw new Error(answer.toasts[0].message);
    if (answer.address) window.location.assign(answer.address);
    else ns.fill("opened-words", answer.html["opened-words"]);
  }

  /* The dialog, which comes after the scripts of the page. */
  const drawn = () => new Promise((resolve) => {
    const look = () => {
      const dialog = document.getElementById("opened");
      if (dialog) resolve(dialog);
      else requestAnimationFrame(look);
    };
    look();
  });

  async function open(files) {
    if (!files.length) return;
    const dialog = await drawn();
    ns.fill("opened-words", "reading …");
    if (!dialog.open) dialog.showModal();
    try {
      await answered(files);
    } catch (error) {
      document.getElementById("opened-words").textContent = document.getElementById("opened-words").shown = error.message;
    }
  }

  const chosen = Object.assign(document.createElement("input"), { type: "file", multiple: true, id: "chosen-files", hidden: true });
  chosen.setAttribute("aria-label", "Files to open");
  chosen.addEventListener("change", () => open([...chosen.files]).finally(() => (chosen.value = "")));
  document.body.append(chosen);

  document.addEventListener("click", (event) => event.target.closest("#open-files") && chosen.click());
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  for (const kind of ["dragover", "dragleave", "drop"])
    window.addEventListener(kind, (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      document.documentElement.classList.toggle("dropping", kind === "dragover");
      if (kind === "drop") Promise.all([...event.dataTransfer.items].map((item) => filesOf(item.webkitGetAsEntry(), item.getAsFile()))).then((files) => open(files.flat()));
    });
})();
