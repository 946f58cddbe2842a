import { describe, expect, test } from "vitest";
import { preferences } from "../app/preferences";
import { ago, bytes, clock, count, dollars, duration, moment, price, short } from "../part/format";
import { dateEnd, dateOf } from "../part/moment";

const AT = Date.UTC(2026, 10, 22, 3, 4, 17, 214);

test("money has as many digits as it takes not to be zero", () => {
  const rows: [number | null, string][] = [
    [null, "–"],
    [0, "$0"],
    [14_470, "$0.0145"],
    [1_234_567_890, "$1,234.57"],
    [0.125, "$0.000000125"],
    [150_000, "$0.150"],
    [-2_000_000, "-$2.00"],
  ];
  for (const [micro, text] of rows) expect(dollars(micro)).toBe(text);
});

test("an unknown value is a dash and never a zero", () => {
  for (const show of [dollars, price, count, short, duration, bytes, ago]) expect(show(null)).toBe("–");
  expect(moment(null)).toBe("–");
});

test("durations, counts and sizes are short", () => {
  const rows: [string, string][] = [
    [duration(190), "0.19 ms"],
    [duration(410_000), "410 ms"],
    [duration(2_330_000), "2.33 s"],
    [duration(61_000_000), "61.0 s"],
    [duration(192_000_000), "3 min 12 s"],
    [count(46_302), "46,302"],
    [short(38_912), "38.9 k"],
    [short(1_000_000), "1 M"],
    [short(999_499), "999 k"],
    [bytes(7_343), "7.3 kB"],
    [price(1.25), "$1.25"],
    [price(0.0375), "$0.0375"],
  ];
  for (const [shown, wanted] of rows) expect(shown).toBe(wanted);
});

describe("moments", () => {
  test("follow the chosen time zone", () => {
    preferences.zone.value = "utc";
    expect(clock(AT, "ms")).toBe("03:04:17.214");
    expect(moment(AT, AT)).toBe("22 Nov 03:04");
    expect(moment(AT, AT + 366 * 86_400_000)).toBe("22 Nov 2026 03:04");
    preferences.zone.value = "local";
    const here = new Date(AT);
    expect(clock(AT)).toBe(`${String(here.getHours()).padStart(2, "0")}:${String(here.getMinutes()).padStart(2, "0")}`);
    preferences.zone.value = "utc";
  });

  test("a day that was typed ends with its last millisecond", () => {
    expect(dateEnd("2026-11-22")).toBe(Date.UTC(2026, 10, 22, 23, 59, 59, 999));
    expect(dateOf(dateEnd("2026-11-22"))).toBe("2026-11-22");
    expect(dateOf(null)).toBe("");
  });

  test("lie in the past or the future", () => {
    const rows: [number, string][] = [
      [2, "now"],
      [-30, "30 s ago"],
      [-200, "3 min ago"],
      [-7300, "2 h ago"],
      [-39 * 3600, "1 d ago"],
      [3 * 86_400, "in 3 d"],
    ];
    for (const [seconds, text] of rows) expect(ago(AT + seconds * 1000, AT)).toBe(text);
  });
});
