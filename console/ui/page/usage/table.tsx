// The sums of each group. Each number leads to the requests behind it.
import type { ComponentChildren } from "preact";
import { may } from "../../api/client";
import type { ChargedFigures as Figures, Usage, UsageLine } from "../../api/types";
import { href, setParams } from "../../app/router";
import { count, dollars, duration, plural, short, UNKNOWN } from "../../part/format";
import { Icon } from "../../part/icon";
import { Card } from "../../part/page";
import { Spend } from "../keys";
import { BY, changeWords, filtersOf, nameOf } from "./groups";
import type { Span } from "./span";

type Props = {
  of: Usage;
  /** The same groups in the time before; null without a comparison. */
  before: Usage | null;
  by: string;
  span: Span;
  filters: Record<string, string>;
};

const titleOf = (by: string): string =>
  by
    .split(",")
    .map((name, i) => {
      const title = BY.find(([id]) => id === name)?.[1] ?? name;
      return i ? title.toLowerCase() : title;
    })
    .join(" and ");

const HEADS = ["Requests", "Cost", "Input", "Output", "First token", "Total time"];

export function Lines({ of, before, by, span, filters }: Props) {
  const was = (line: UsageLine): UsageLine | undefined => before?.data.find((other) => nameOf(other, by) === nameOf(line, by));
  const unpriced = of.totals?.requests_unpriced ?? 0;
  if (of.data.length === 0) return null;
  return (
    <Card title={`By ${titleOf(by).toLowerCase()}`} bare>
      <div class="table-wrap" role="group" aria-label="Sums" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{titleOf(by)}</th>
              {HEADS.map((head) => (
                <th key={head} scope="col" class="num">
                  {head}
                </th>
              ))}
              {before && (
                <th scope="col" class="num">
                  Before
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {of.data.map((line) => (
              <Line
                key={nameOf(line, by)}
                of={line}
                before={before ? (was(line) ?? null) : undefined}
                by={by}
                span={span}
                filters={filters}
              />
            ))}
            {of.totals && (
              <tr>
                <td>
                  <b>Total</b>
                </td>
                <Cells of={of.totals} to={href("/requests", requestsOf(filters, span))} />
                {before && <Before now={of.totals} before={before.totals} />}
              </tr>
            )}
          </tbody>
        </table>
      </div>
      {unpriced > 0 && (
        <div class="table-foot">
          <span>{plural(unpriced, "attempt")} without a known price: in no sum of costs</span>
          {may("administer") && (
            <button type="button" class="btn small" onClick={() => setParams({ reprice: "1" })}>
              Set a price and reprice
            </button>
          )}
        </div>
      )}
    </Card>
  );
}

const requestsOf = (filters: Record<string, string>, { from, to }: Span): Record<string, string> => ({
  ...filters,
  from: String(from),
  to: String(to),
});

type LineProps = { of: UsageLine; before: UsageLine | null | undefined; by: string; span: Span; filters: Record<string, string> };

function Line({ of, before, by, span, filters }: LineProps) {
  const own = filtersOf(of, by);
  const name = nameOf(of, by) || UNKNOWN;
  return (
    <tr>
      <td class="wrap">
        {own ? (
          <button type="button" class="link wrap" title="Only this" onClick={() => setParams(own)}>
            {name}
          </button>
        ) : (
          name
        )}
        {may("administer") && of.requests_unpriced > 0 && of.group.model && (
          <button
            type="button"
            class="btn plain square small"
            aria-label={`Set a price of ${of.group.model} and reprice`}
            onClick={() => setParams({ reprice: of.group.provider ? `${of.group.provider}/${of.group.model}` : `/${of.group.model}` })}
          >
            <Icon name="pencil" small />
          </button>
        )}
      </td>
      <Cells of={of} to={own && href("/requests", requestsOf({ ...filters, ...own }, span))} />
      {before !== undefined && <Before now={of} before={before} />}
    </tr>
  );
}

const INPUT = ["input", "cache_read", "cache_write", "cache_write_1h", "audio_input", "image_input"];

/** The tokens that clients have sent. */
export const inputOf = (of: Figures): number => INPUT.reduce((sum, kind) => sum + (of.tokens[kind] ?? 0), 0);

function Cells({ of, to }: { of: Figures; to: string | null }) {
  const input = inputOf(of);
  const cells: ComponentChildren[] = [
    count(of.requests),
    <Spend key="c" figures={of} />,
    short(input),
    short(of.tokens.total - input),
    duration(of.first_content_us_avg),
    duration(of.duration_us_avg),
  ];
  return cells.map((cell, i) => (
    <td key={HEADS[i]} class="num">
      {to ? (
        <a class="plain" href={to}>
          {cell}
        </a>
      ) : (
        cell
      )}
    </td>
  ));
}

/** The cost of the time before and how it has changed; the requests where nothing has a price. */
function Before({ now, before }: { now: Figures; before: Figures | null }) {
  const hasCost = now.cost_micro_usd > 0 || (before?.cost_micro_usd ?? 0) > 0;
  const [text, words] = hasCost
    ? [dollars(before?.cost_micro_usd ?? 0), changeWords(now.cost_micro_usd, before?.cost_micro_usd ?? 0)]
    : [plural(before?.requests ?? 0, "request"), changeWords(now.requests, before?.requests ?? 0)];
  return (
    <td class="num">
      {text} <span class="faint">{words}</span>
    </td>
  );
}
