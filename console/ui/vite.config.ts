// How the console is built: one script and one style sheet with hashed names, identical bytes on every machine.
import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "/console/",
  // The gateway may be published below a path: the page is written for it when it is served, the styles name their fonts from
  // where they are.
  experimental: { renderBuiltUrl: (_name, { hostType }) => (hostType === "css" ? { relative: true } : undefined) },
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    // The first browsers with light-dark() and popovers.
    target: ["chrome123", "firefox125", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: { output: { codeSplitting: false } },
  },
  server: { proxy: { "/admin": "http://127.0.0.1:8787", "/health": "http://127.0.0.1:8787" } },
  // The colours of the tokens are tested.
  test: { css: { include: [/tokens/] }, include: ["test/**/*.test.ts"], environment: "node" },
});
