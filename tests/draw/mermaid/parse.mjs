// Reads charts, a JSON list of texts, from stdin and prints what Mermaid understood of each: nodes, edges, boxes.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const page = new JSDOM("<!DOCTYPE html><body></body>");
globalThis.window = page.window;
globalThis.document = page.window.document;

const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });

// Between parsing and drawing Mermaid keeps `#35;` in letters of its own.
const decoded = (text) => text.replaceAll(/ﬂ°°(\d+)¶ß/g, (_, code) => String.fromCodePoint(Number(code)));

const read = async (text) => {
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  return {
    about: decoded(db.getAccDescription()),
    nodes: [...db.getVertices().values()].map((node) => [node.id, decoded(node.text), node.classes]),
    edges: db.getEdges().map((edge) => [edge.start, edge.end, decoded(edge.text)]),
    boxes: db.getSubGraphs().map((box) => [decoded(box.title), box.nodes]),
  };
};

const found = [];
for (const text of JSON.parse(readFileSync(0, "utf8"))) found.push(await read(text));
console.log(JSON.stringify(found));
