// Builds the dashboard into the server's crate. The same sources give the same bytes: names of files are hashes of their
// content, and nothing records a time or a path of this machine.
import { defineConfig } from "vite";

// Where `npm run dev` finds a server: `perennial --store … serve` prints its URL.
const server = process.env["PERENNIAL_SERVER"] ?? "http://127.0.0.1:7370";

export default defineConfig({
  // Relative, so that the pages work under any prefix.
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: {
    host: "127.0.0.1",
    // The server checks the host and the origin of requests; the proxy sends its own.
    proxy: {
      "/api": {
        target: server,
        changeOrigin: true,
        headers: { origin: server },
      },
    },
  },
  build: {
    outDir: "../crates/perennial-server/dist",
    emptyOutDir: true,
    // The policy of the server allows neither inline scripts nor data URLs.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    target: ["chrome130", "firefox132", "safari18"],
    cssTarget: ["chrome130", "firefox132", "safari18"],
    reportCompressedSize: false,
  },
  worker: { format: "es" },
});
