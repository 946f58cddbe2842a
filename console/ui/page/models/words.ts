// Prices of a model in words.
import type { Prices } from "../../api/types";
import { plural, price } from "../../part/format";
import { CLASSES } from "./price_draft";

/** `input $2.00, output $8.00, 1 service tier`. */
export function pricesInWords(prices: Prices): string {
  const rates = CLASSES.flatMap(({ name, title }) => {
    const amount = prices[name as keyof Prices];
    return typeof amount === "number" ? [`${title.toLowerCase()} ${price(amount)}`] : [];
  });
  const more: [number, string][] = [
    [prices.above?.length ?? 0, "step for longer prompts"],
    [Object.keys(prices.tiers ?? {}).length, "service tier"],
    [Object.keys(prices.pictures ?? {}).length, "size of images"],
  ];
  const manys: Record<string, string> = { "step for longer prompts": "steps for longer prompts", "size of images": "sizes of images" };
  return [...rates, ...more.filter(([n]) => n > 0).map(([n, one]) => plural(n, one, manys[one] ?? `${one}s`))].join(", ");
}
