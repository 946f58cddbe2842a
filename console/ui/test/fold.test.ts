import { describe, expect, it } from "vitest";
import { type Foldable, foldedInto } from "../part/fold";

const heads = (columns: Foldable[]): string => columns.map(({ head }) => head).join(" ");
const COLUMNS: Foldable[] = [
  { head: "Name", width: "1fr" },
  { head: "State", width: 100, fold: 2 },
  { head: "Key", width: "1fr", least: 80, fold: 1 },
  { head: "Cost", width: 100 },
];

describe("the columns of a narrow table", () => {
  it.each([
    [0, "Name State Key Cost", []],
    [400, "Name State Key Cost", []],
    [399, "Name State Cost", ["Key"]],
    [310, "Name Cost", ["State Key"]],
    [200, "Name Cost", ["State", "Key"]],
  ])("of %i pixels", (wide, first, below) => {
    const layout = foldedInto(COLUMNS, wide);
    expect(heads(layout.first)).toBe(first);
    expect(layout.below.map(heads)).toEqual(below);
  });
});
