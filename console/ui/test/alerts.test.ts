import { expect, test } from "vitest";
import { entryOf } from "../app/nav";
import { standingOf } from "../page/alerts";
import { figureName, figureText, thresholdText } from "../page/alerts/kinds";
import { typed } from "../part/number";

test("an alert is failing only while somebody must act", () => {
  expect(standingOf({ state: "open", severity: "bad" })).toEqual({ kind: "bad", word: "open, urgent" });
  expect(standingOf({ state: "open", severity: "warn" }).kind).toBe("warn");
  expect(standingOf({ state: "acknowledged", severity: "bad" }).kind).toBe("warn");
  expect(standingOf({ state: "resolved", severity: "bad" }).kind).toBe("ok");
});

test("a threshold has the unit of its kind", () => {
  const floor_micro_usd = null;
  expect(thresholdText({ kind: "quota_warning", threshold: 80, floor_micro_usd })).toBe("80 % used");
  expect(thresholdText({ kind: "spend_anomaly", threshold: 3, floor_micro_usd: 5_000_000 })).toBe("3 times the usual, above $5.00");
  expect(thresholdText({ kind: "provider_down", threshold: null, floor_micro_usd })).toBeNull();
});

test("figures of an alert have their units", () => {
  expect([figureName("free_percent"), figureText("free_percent", 4.2631)]).toEqual(["Free", "4.26 %"]);
  expect([figureName("usual_max_micro_usd"), figureText("usual_max_micro_usd", 1_500_000)]).toEqual(["Usual max", "$1.50"]);
  expect([figureName("left_days"), figureText("left_days", 0.999_87)]).toEqual(["Left days", "1"]);
  expect(figureText("requests", 1234)).toBe("1234");
});

test("what is no number reaches the gateway as it was typed", () => {
  expect([typed("7.5"), typed("7.5", 1e6), typed(""), typed("seven")]).toEqual([7.5, 7_500_000, "", "seven"]);
});

test("pages of tabs belong to the entry of the navigation", () => {
  expect(["/alerts/rules", "/webhooks", "/outbox", "/keys/key_1", "/none"].map((path) => entryOf(path)?.title)).toEqual([
    "Alerts",
    "Alerts",
    "Alerts",
    "API keys",
    undefined,
  ]);
});
