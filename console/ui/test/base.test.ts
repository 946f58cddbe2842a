import { expect, it } from "vitest";
import { pathOf } from "../api/base";

it("the path of the gateway is what stands before the console in the address of its script", () => {
  const paths = {
    "https://gw.example/console/assets/index-1.js": "",
    "https://gw.example/llm/console/assets/index-1.js": "/llm",
    "https://gw.example/tools/console/console/assets/index-1.js": "/tools/console",
    "file:///home/console/ui/api/base.ts": "",
  };
  for (const [script, path] of Object.entries(paths)) expect(pathOf(script)).toBe(path);
});
