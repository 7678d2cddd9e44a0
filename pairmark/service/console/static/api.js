// The public API, with the caller's own session. A refusal becomes an ApiError that carries the problem document.

import { $, el } from "./dom.js";

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `the service answered ${status}`);
    this.status = status;
    this.problem = problem || {};
  }
}

// Text as the command line prints it: what stands between backticks is code, and a number keeps its percent sign.
export const coded = (text) => text.replaceAll(" %", "\u00a0%").split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));

// The ways out of a refusal, a line each.
export const waysOut = (error) => (error.problem?.ways ?? []).flatMap((way) => [el("br"), ...coded(way.text)]);

// A name or id as one segment of an address; "." and ".." survive the encoding, and browsers resolve them.
export function segment(text) {
  if (["", ".", ".."].includes(text)) throw new ApiError(0, { detail: `“${text}” cannot stand in an address; expected another name or id` });
  return encodeURIComponent(text);
}

const csrf = () => $('meta[name="csrf-token"]')?.content;

export async function api(method, path, body, { headers = {}, signal } = {}) {
  const sent = { accept: "application/json", ...headers };
  const token = csrf();
  if (token && method !== "GET") sent["x-csrf-token"] = token;
  let payload = body;
  if (body !== undefined && !(body instanceof FormData) && !(body instanceof Blob)) {
    sent["content-type"] = "application/json";
    payload = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers: sent, body: payload, signal, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "The service did not answer. Is it running?" });
  }
  const text = await answer.text();
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = { detail: text.slice(0, 200) };
  }
  if (!answer.ok) {
    if (answer.status === 401) sessionEnded();
    throw new ApiError(answer.status, data);
  }
  return data;
}

// As `api`, for bodies large enough that people want to see how far they are.
export function sendFile(method, path, body, progress, type) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open(method, path);
    if (type) request.setRequestHeader("content-type", type);
    const token = csrf();
    if (token) request.setRequestHeader("x-csrf-token", token);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onload = () => {
      let data = {};
      try {
        data = JSON.parse(request.responseText);
      } catch { /* not JSON: the status says enough */ }
      request.status < 300 ? done(data) : failed(new ApiError(request.status, data));
    };
    request.onerror = () => failed(new ApiError(0, { detail: "The upload was cut off." }));
    request.send(body);
  });
}

export function sessionEnded() {
  if ($("#session-ended")) return;
  const next = encodeURIComponent(location.pathname + location.search);
  const note = el("p", { id: "session-ended", class: "note bad", role: "alert" }, "Your session has ended. ", el("a", { href: `/login?next=${next}` }, "Sign in again"), " to go on.");
  $("main").prepend(note);
  note.scrollIntoView({ block: "center" });
}

export function say(place, error) {
  if (!place) return;
  const type = error.problem?.type;
  place.replaceChildren(...coded(error.message), ...(type ? [" ", el("a", { href: type }, "How to fix it")] : []));
  place.hidden = false;
}
