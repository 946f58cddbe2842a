// Reads messages as lines of JSON ({secret, headers, body}) and writes for each what the library of Node answers: "ok", or
// the error.
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line);
  let answer = "ok";
  try {
    new Webhook(secret).verify(body, headers);
  } catch (error) {
    answer = String(error?.message ?? error);
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
