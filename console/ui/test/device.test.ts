// The code of a client that signs in.
import { expect, test } from "vitest";
import { written } from "../page/device";

test("a code is written as the gateway shows it, however it is typed", () => {
  for (const [typed, want] of [
    ["wdjb-mjht", "WDJB-MJHT"],
    [" WDJB MJHT ", "WDJB-MJHT"],
    ["wdjbmjht", "WDJB-MJHT"],
    ["wdj", "WDJ"],
    ["", ""],
  ]) {
    expect(written(typed ?? "")).toBe(want);
  }
});
