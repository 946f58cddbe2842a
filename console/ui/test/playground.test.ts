import { expect, test } from "vitest";
import { rowsOf } from "../page/playground/bytes";
import { bodyOf, type Draft, imagesOf, StreamText, textOf } from "../page/playground/operations";

const draft: Draft = {
  temperature: "",
  tokensMax: "",
  model: "default",
  system: "",
  turns: [],
  message: "hi",
  stream: true,
  voice: "alloy",
  tools: "",
  image: null,
  file: null,
};

test("each operation has the body that its protocol asks for", () => {
  expect(bodyOf("chat", { ...draft, system: "Be brief.", turns: [{ role: "assistant", text: "hello" }] })).toEqual({
    model: "default",
    stream: true,
    stream_options: { include_usage: true },
    messages: [
      { role: "system", content: "Be brief." },
      { role: "assistant", content: "hello" },
      { role: "user", content: "hi" },
    ],
  });
  expect(bodyOf("messages", { ...draft, image: "data:image/png;base64,AAAA", stream: false })).toMatchObject({
    max_tokens: 1024,
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "hi" },
          { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } },
        ],
      },
    ],
  });
  expect(bodyOf("responses", { ...draft, tools: '[{"type":"web_search"}]' })).toMatchObject({
    store: false,
    tools: [{ type: "web_search" }],
  });
  const settings = { ...draft, temperature: "0.2", tokensMax: "50" };
  expect(bodyOf("messages", settings)).toMatchObject({ temperature: 0.2, max_tokens: 50 });
  expect(bodyOf("responses", settings)).toMatchObject({ temperature: 0.2, max_output_tokens: 50 });
  expect(() => bodyOf("chat", { ...draft, temperature: "hot" })).toThrow("Temperature: write a number.");
  expect(bodyOf("embeddings", draft)).toEqual({ model: "default", input: "hi" });
  expect(bodyOf("speech", draft)).toEqual({ model: "default", input: "hi", voice: "alloy" });
  expect(() => bodyOf("transcription", draft)).toThrow("Choose a recording");
  expect(() => bodyOf("chat", { ...draft, tools: "{}" })).toThrow("a JSON list");
});

test("the text of a stream is the same wherever its pieces end", () => {
  const events = [
    { choices: [{ delta: { content: "Hel" } }] },
    { type: "response.output_text.delta", delta: "lo " },
    { type: "content_block_delta", delta: { text: "you" } },
  ];
  const bytes = `${events.map((event) => `event: x\ndata: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`;
  for (let at = 0; at <= bytes.length; at += 1) {
    const stream = new StreamText();
    stream.push(bytes.slice(0, at));
    stream.push(bytes.slice(at));
    expect(stream.text).toBe("Hello you");
  }
});

test("the text and the images of a whole answer are found in each protocol", () => {
  expect(textOf({ choices: [{ message: { content: "a" } }] })).toBe("a");
  expect(textOf({ content: [{ type: "text", text: "b" }, { type: "tool_use" }] })).toBe("b");
  expect(textOf({ output: [{ content: [{ type: "output_text", text: "c" }] }, { type: "reasoning" }] })).toBe("c");
  expect(textOf({ text: "d" })).toBe("d");
  expect(textOf(null)).toBe("");
  expect(imagesOf({ data: [{ b64_json: "AAAA" }, { url: "https://elsewhere.example/x.png" }] })).toEqual(["data:image/png;base64,AAAA"]);
});

test("two texts are laid beside each other with what differs", () => {
  expect(rowsOf(["a", "b", "c"], ["a", "x", "c"])).toEqual([
    { left: "a", right: "a", same: true },
    { left: "b", right: null, same: false },
    { left: null, right: "x", same: false },
    { left: "c", right: "c", same: true },
  ]);
  expect(rowsOf([], ["a"])).toEqual([{ left: null, right: "a", same: false }]);
  const long = Array.from({ length: 500 }, (_, i) => String(i));
  expect(rowsOf(long, long).every(({ same }) => same)).toBe(true);
});
