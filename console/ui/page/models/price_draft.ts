// The prices of a model as a form edits them, and what becomes unknown if they are saved.
import type { Prices, PriceTier } from "../../api/types";
import { count } from "../../part/format";

/** A class of billed units: its member of `prices`, its words, its unit, and its name in records of usage. */
type PriceClass = { name: string; title: string; unit: string; counted: string; isCommon?: true };

const MILLION = "$ per million";
const SECOND = "$ a second";
const EACH = "$ each";

export const CLASSES: readonly PriceClass[] = [
  { name: "input", title: "Input", unit: MILLION, counted: "input", isCommon: true },
  { name: "output", title: "Output", unit: MILLION, counted: "output", isCommon: true },
  { name: "cached_input", title: "Input from cache", unit: MILLION, counted: "cache_read", isCommon: true },
  { name: "cache_write", title: "Written to cache, 5 min", unit: MILLION, counted: "cache_write", isCommon: true },
  { name: "cache_write_1h", title: "Written to cache, 1 h", unit: MILLION, counted: "cache_write_1h", isCommon: true },
  { name: "reasoning", title: "Reasoning", unit: MILLION, counted: "reasoning" },
  { name: "audio_input", title: "Audio in", unit: MILLION, counted: "audio_input" },
  { name: "audio_output", title: "Audio out", unit: MILLION, counted: "audio_output" },
  { name: "image_input", title: "Images in", unit: MILLION, counted: "image_input" },
  { name: "image_output", title: "Images out", unit: MILLION, counted: "image_output" },
  { name: "characters", title: "Characters", unit: MILLION, counted: "characters" },
  { name: "audio_second", title: "Audio", unit: SECOND, counted: "audio_ms" },
  { name: "video_second", title: "Video", unit: SECOND, counted: "video_ms" },
  { name: "image", title: "Images", unit: EACH, counted: "images" },
  { name: "search", title: "Searches", unit: EACH, counted: "searches" },
  { name: "tool_call", title: "Tool calls", unit: EACH, counted: "tool_calls" },
];

/** The classes that are billed as another one if they have no price of their own, at prices that an operator sets. */
const BILLED_AS: Record<string, string> = { cached_input: "input", reasoning: "output" };

/** The prices of one service tier and one length of prompts. Numbers are texts as typed; an empty text is unknown. */
export type Part = {
  /** The service tier; empty for the standard one. */
  tier: string;
  /** The number of input tokens above which the prices apply; empty for those of all shorter prompts. */
  above: string;
  /** The number of input tokens up to which the prices apply. */
  max: string;
  /** A factor on the standard prices, instead of prices. */
  times: string;
  rates: Record<string, string>;
  /** A line for each size or `quality/size`: `1024x1024 0.04`. */
  pictures: string;
};

export const NEW_PART: Part = { tier: "", above: "", max: "", times: "", rates: {}, pictures: "" };

export const isBase = ({ tier, above }: Part): boolean => tier === "" && above === "";

/** `Tier flex, prompts above 200,000 tokens`. */
export function partTitle({ tier, above }: Pick<Part, "tier" | "above">): string {
  const words = [tier && `tier ${tier}`, above && `prompts above ${count(Number(above))} tokens`].filter(Boolean).join(", ");
  return words || "standard prices";
}

const text = (value: unknown): string => (typeof value === "number" ? String(value) : "");

const ratesOf = (of: object): Record<string, string> =>
  Object.fromEntries(CLASSES.map(({ name }) => [name, text((of as Record<string, unknown>)[name])]));

function partsOf(schedule: PriceTier, tier: string): Part[] {
  const pictures = Object.entries(schedule.pictures ?? {});
  const own: Part = {
    tier,
    above: "",
    max: text(schedule.input_tokens_max),
    times: text(schedule.times),
    rates: ratesOf(schedule),
    pictures: pictures.map(([size, amount]) => `${size} ${amount}`).join("\n"),
  };
  const steps = (schedule.above ?? []).map((step): Part => ({ ...NEW_PART, tier, above: text(step.input_tokens), rates: ratesOf(step) }));
  return [own, ...steps];
}

/** The standing prices as parts; the first one holds the standard prices. */
export function draftOf(prices: Prices | null): Part[] {
  const { tiers = {}, ...standard } = prices ?? {};
  return [...partsOf(standard, ""), ...Object.entries(tiers).flatMap(([name, tier]) => partsOf(tier, name))];
}

/** A typed number. A text that is none is sent as it is, so that the gateway names the field. */
function amount(typed: string): number | string {
  const number = Number(typed.trim());
  return Number.isNaN(number) ? typed : number;
}

const amounts = (of: Record<string, string>): Record<string, number | string> =>
  Object.fromEntries(
    Object.entries(of)
      .filter(([, typed]) => typed.trim())
      .map(([name, typed]) => [name, amount(typed)]),
  );

function scheduleOf(parts: Part[]): Record<string, unknown> {
  const own = parts.find(({ above }) => above === "") ?? NEW_PART;
  const steps = parts.filter(({ above }) => above !== "");
  const pictures = own.pictures
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([size]) => size)
    .map(([size, typed = ""]) => [size, amount(typed || "?")]);
  return {
    ...amounts({ ...own.rates, input_tokens_max: own.max, times: own.times }),
    ...(steps.length ? { above: steps.map(({ above, rates }) => ({ input_tokens: amount(above), ...amounts(rates) })) } : {}),
    ...(pictures.length ? { pictures: Object.fromEntries(pictures) } : {}),
  };
}

/** The member `prices` of an override. */
export function pricesOf(draft: Part[]): Record<string, unknown> {
  const tiers = [...new Set(draft.map(({ tier }) => tier).filter(Boolean))];
  const standard = scheduleOf(draft.filter(({ tier }) => tier === ""));
  if (tiers.length === 0) return standard;
  return { ...standard, tiers: Object.fromEntries(tiers.map((name) => [name, scheduleOf(draft.filter(({ tier }) => tier === name))])) };
}

/** True if a class has a price in a part, of its own or that of another class. */
function isPriced({ rates, pictures }: Part, name: string): boolean {
  const other = BILLED_AS[name];
  const isSet = (rate: string | undefined): boolean => Boolean(rate?.trim());
  return isSet(rates[name]) || (other !== undefined && isSet(rates[other])) || (name === "image" && pictures.trim() !== "");
}

/**
 * What would have no known cost: what the standing prices have and the draft lacks, and what recent requests used (`used` contains the
 * names of records) and the draft lacks.
 */
export function unknownAfter(draft: Part[], standing: Part[], used: string[]): string[] {
  const unknown: string[] = [];
  for (const before of standing) {
    const after = draft.find(({ tier, above }) => tier === before.tier && above === before.above);
    if (!after) {
      unknown.push(partTitle(before));
      continue;
    }
    const suffix = isBase(before) ? "" : ` (${partTitle(before)})`;
    for (const { name, title, counted } of CLASSES) {
      const isUsed = isBase(before) && used.includes(counted);
      if ((before.rates[name] || isUsed) && !isPriced(after, name))
        unknown.push(`${title.toLowerCase()}${isUsed ? " (used in the last 30 days)" : suffix}`);
    }
    if (before.times && !after.times.trim() && Object.values(after.rates).every((rate) => !rate.trim())) unknown.push(partTitle(before));
    if (before.pictures && !after.pictures.trim()) unknown.push(`sizes of images${suffix}`);
  }
  return unknown;
}
