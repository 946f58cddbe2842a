// What a request used, class by class, with the price of each and where the numbers are from.
import type { FullRecord } from "../../api/shapes";
import { count, dollars, price, UNKNOWN } from "../../part/format";
import { Card, Meter } from "../../part/page";
import { inputOf, outputOf } from "../requests";

/** The classes of tokens: their name in records, on the page, and in the label of prices. */
const CLASSES: [name: string, title: string, label: string][] = [
  ["input", "Input", "in"],
  ["cache_read", "Input from cache", "cached"],
  ["cache_write", "Written to cache", "write"],
  ["cache_write_1h", "Written to cache for an hour", "write_1h"],
  ["audio_input", "Audio in", "audio_input"],
  ["image_input", "Images in", "image_input"],
  ["output", "Output", "out"],
  ["reasoning", "Reasoning", "reasoning"],
  ["audio_output", "Audio out", "audio_output"],
  ["image_output", "Images out", "image_output"],
];

/** What a class costs as much as unless it has a price of its own; cached input does so at prices that an operator has set. */
const BILLED_AS: Record<string, string> = { reasoning: "out", cache_read: "in" };

const PROVENANCE: Record<string, [kind: string, words: string, short: string]> = {
  reported: ["ok", "Reported by the upstream", "reported"],
  measured: ["ok", "Measured by the gateway", "measured"],
  estimated: ["warn", "Estimated by the gateway", "estimated"],
  none: ["", "Unknown", UNKNOWN],
};

export type ClassLine = {
  title: string;
  tokens: number;
  /** In dollars per million; null if it is not known. */
  price: number | null;
  cost_micro_usd: number | null;
};

/** The prices that a label names, such as `list 2026-11-22 in 2.5 cached 0.25 out 15`. */
function pricesOf(label: string | null): Map<string, number> {
  const words = label?.split(" ") ?? [];
  return new Map(
    words.flatMap((word, i): [string, number][] => (CLASSES.some(([, , name]) => name === word) ? [[word, Number(words[i + 1])]] : [])),
  );
}

/**
 * The classes that were used. Their prices are those of the record's label, if they add up to its cost: a tier or a step for long
 * prompts has others, which the label does not spell out.
 */
export function classesOf(of: FullRecord): ClassLine[] {
  const prices = pricesOf(of.price);
  const lines = CLASSES.filter(([name]) => of.tokens[name]).map(([name, title, label]) => {
    const tokens = of.tokens[name] ?? 0;
    const amount = prices.get(label) ?? prices.get(BILLED_AS[name] ?? "") ?? null;
    return { title, tokens, price: amount, cost_micro_usd: amount === null ? null : amount * tokens };
  });
  const sum = lines.reduce((sum, { cost_micro_usd }) => sum + (cost_micro_usd ?? Number.NaN), 0);
  const isExact = of.cost_micro_usd !== null && Math.abs(sum - of.cost_micro_usd) <= Math.max(0.01, of.cost_micro_usd / 1000);
  return isExact ? lines : lines.map((line) => ({ ...line, price: null, cost_micro_usd: null }));
}

export function TokensCard({ of }: { of: FullRecord }) {
  const [kind, words, short] = PROVENANCE[of.provenance] ?? ["", of.provenance, of.provenance];
  const total = inputOf(of) + outputOf(of);
  const lines = classesOf(of);
  const units = Object.entries(of.units).filter(([, amount]) => amount > 0);
  if (lines.length === 0 && units.length === 0)
    return (
      <Card title="Tokens and cost" aside={<span class={`tag ${kind}`}>{words}</span>}>
        <p class="muted">{of.provenance === "none" ? "No usage is known: no upstream answered." : "Nothing was used."}</p>
      </Card>
    );
  const isSumOnly = of.cost_micro_usd !== null && lines.length > 0 && lines.every((line) => line.price === null);
  return (
    <Card title="Tokens and cost" aside={<span class={`tag ${kind}`}>{words}</span>} bare>
      <div class="table-wrap" role="group" aria-label="Tokens" tabIndex={0}>
        <table class="table tokens">
          <thead>
            <tr>
              <th scope="col">Class</th>
              <th scope="col" class="num">
                Tokens
              </th>
              <th scope="col" class="roomy">
                Share
              </th>
              <th scope="col" class="roomy">
                Counted
              </th>
              <th scope="col" class="num">
                Price per million
              </th>
              <th scope="col" class="num">
                Cost
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line) => (
              <tr key={line.title}>
                <td>{line.title}</td>
                <td class="num">{count(line.tokens)}</td>
                <td class="roomy">
                  <Meter share={line.tokens / total} />
                </td>
                <td class="faint roomy">{short}</td>
                <td class="num">{price(line.price)}</td>
                <td class="num">{dollars(line.cost_micro_usd)}</td>
              </tr>
            ))}
            {units.map(([name, amount]) => (
              <tr key={name}>
                <td>{name.replace(/_/g, " ")}</td>
                <td class="num">{count(amount)}</td>
                <td class="roomy" />
                <td class="faint roomy">{short}</td>
                <td />
                <td />
              </tr>
            ))}
            <tr>
              <td>
                <b>Total</b>
              </td>
              <td class="num">
                <b>{of.provenance === "none" ? UNKNOWN : count(total)}</b>
              </td>
              <td class="roomy" />
              <td class="roomy" />
              <td class="num faint" title={of.price ?? ""}>
                {sourceOf(of.price)}
              </td>
              <td class="num">
                <b>{dollars(of.cost_micro_usd)}</b>
              </td>
            </tr>
          </tbody>
        </table>
      </div>
      {!!of.unpriced?.length && (
        <p class="card-body help">
          The cost is unknown, because the prices of the model lack {of.unpriced.join(", ")}. Set a price on the page of models, then
          reprice.
        </p>
      )}
      {isSumOnly && <p class="card-body help">A service tier or a step for long prompts set the price: only the sum is known.</p>}
    </Card>
  );
}

/** `list of 2026-11-22`. */
function sourceOf(label: string | null): string {
  const [source = "", date = ""] = label?.split(" ") ?? [];
  return /^\d{4}-/.test(date) ? `${source} of ${date}` : source;
}
