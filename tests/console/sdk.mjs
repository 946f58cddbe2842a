// The official OpenAI SDK for Node, which runs the text that the console shows for it.

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const MODULES = fileURLToPath(new URL("../../console/ui/node_modules", import.meta.url));

/** Runs the text of a client as its user would: in a file of its own. Returns what it printed. */
export async function runSnippet(text) {
  const folder = mkdtempSync(join(tmpdir(), "llmgw-snippet-"));
  try {
    symlinkSync(MODULES, join(folder, "node_modules"));
    writeFileSync(join(folder, "client.mjs"), text);
    const { stdout } = await promisify(execFile)(process.execPath, ["client.mjs"], { cwd: folder, timeout: 60_000 });
    return stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
