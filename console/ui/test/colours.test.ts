/// <reference types="vite/client" />
import { expect, test } from "vitest";
import tokens from "../style/tokens.css?raw";

type Colour = [number, number, number];

const linear = (byte: number): number => (byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
const colourOf = (hex: string): Colour => [1, 3, 5].map((at) => linear(Number.parseInt(hex.slice(at, at + 2), 16))) as Colour;
const times = (matrix: Colour[], colour: Colour): Colour =>
  matrix.map((row) => row.reduce((sum, factor, i) => sum + factor * (colour[i] ?? 0), 0)) as Colour;

/** What eyes without receptors for green see, in linear sRGB (Machado, Oliveira and Fernandes, 2009). */
const DEUTAN: Colour[] = [
  [0.367322, 0.860646, -0.227968],
  [0.280085, 0.672501, 0.047413],
  [-0.01182, 0.04294, 0.968881],
];
const NORMAL: Colour[] = [
  [1, 0, 0],
  [0, 1, 0],
  [0, 0, 1],
];

/** A colour in OKLab, whose distances are those that are seen. */
function oklab(colour: Colour): Colour {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    colour,
  ).map(Math.cbrt) as Colour;
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cones,
  );
}

function distance(one: string, other: string, eyes: Colour[]): number {
  const [a, b] = [one, other].map((hex) => oklab(times(eyes, colourOf(hex)).map((part) => Math.min(1, Math.max(0, part))) as Colour));
  return Math.hypot(...(a as Colour).map((part, i) => part - ((b as Colour)[i] ?? 0)));
}

const luminance = (hex: string): number => times([[0.2126, 0.7152, 0.0722]], colourOf(hex))[0];
function contrast(one: string, other: string): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** The light and the dark value of a token. */
function valuesOf(name: string): string[] {
  const found = tokens.match(new RegExp(`--${name}: light-dark\\((#[0-9a-f]{6}), (#[0-9a-f]{6})\\)`));
  return [found?.[1] ?? "", found?.[2] ?? ""];
}

const MARKS = ["ok-mark", "warn-mark", "bad-mark", "cut-mark"];

test.each(["light", "dark"])("answered, failed over, failed and cut off differ for eyes that see no green (%s)", (theme) => {
  const of = (name: string): string => valuesOf(name)[theme === "light" ? 0 : 1] ?? "";
  for (const [i, one] of MARKS.entries()) {
    expect(contrast(of(one), of("surface")), one).toBeGreaterThanOrEqual(3);
    for (const other of [...MARKS.slice(i + 1), ...(one === "ok-mark" ? [] : ["series-quiet", "series-3", "series-6"])])
      for (const eyes of [NORMAL, DEUTAN]) expect(distance(of(one), of(other), eyes), `${one}, ${other}`).toBeGreaterThanOrEqual(0.12);
  }
});
