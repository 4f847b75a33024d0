// The page of diagnoses: a log that is dropped or chosen is sent with progress; a path is named.
"use strict";
(function () {
  const drop = document.getElementById("drop"), path = document.getElementById("path");
  if (!drop) { return; }
  const file = document.getElementById("file"), sent = document.getElementById("sent");

  function upload(log) {
    if (log.size > Number(drop.dataset.most)) {
      penstock.notice("The file is too large to be sent: name its path.", true);
      return;
    }
    // fetch tells nothing of how much was sent
    const request = new XMLHttpRequest();
    request.open("POST", "/diagnosis/upload");
    request.setRequestHeader("x-penstock-csrf", document.querySelector("meta[name=csrf]").content);
    request.setRequestHeader("x-penstock-name", encodeURIComponent(log.name));
    request.setRequestHeader("content-type", "application/octet-stream");
    sent.hidden = false;
    request.upload.onprogress = (event) => { sent.value = event.total ? event.loaded / event.total : 0; };
    request.onerror = () => { sent.hidden = true; penstock.notice("The file was not sent.", true); };
    request.onload = function () {
      sent.hidden = true;
      let answer = {};
      try { answer = JSON.parse(request.responseText); } catch { answer = { error: request.responseText }; }
      if (request.status === 200) { window.location.assign(answer.address); }
      else { penstock.notice(answer.error || request.statusText, true); }
    };
    request.send(log);
  }

  file.addEventListener("change", () => { if (file.files.length) { upload(file.files[0]); } });
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, function (event) {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) { upload(event.dataTransfer.files[0]); }
    });
  }
  if (path) {
    path.addEventListener("submit", async function (event) {
      event.preventDefault();
      try {
        const told = await penstock.send("/diagnosis/path", { path: path.elements.path.value });
        window.location.assign(told.address);
      } catch (error) {
        penstock.notice(error.message, true);
      }
    });
  }
})();
