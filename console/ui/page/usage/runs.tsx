// Runs beside each other: the requests, outcomes, tokens, cost and latency of each value of a tag, such as the runs of a benchmark.
import { useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { Points, SeriesAnswer } from "../../api/shapes";
import { href, param, setParams } from "../../app/router";
import { Empty, Loaded } from "../../part/feedback";
import { Select, Text } from "../../part/form";
import { count, dollars, duration, moment, plural, short } from "../../part/format";
import { Card, Page } from "../../part/page";
import { changeWords } from "./groups";
import { LENGTHS, useSpan } from "./span";

/** One figure of a run: its value, null if unknown, and its words. */
type Figure = { value: number | null; text: string };
type Column = { head: string; figures: (points: Points) => Figure[] };

/** The answer has one point, for the whole time. */
const first = (values: (number | null)[]): number | null => values[0] ?? null;
const sum = (...values: (number | null)[]): number => values.reduce<number>((total, value) => total + (value ?? 0), 0);
const figure = (value: number | null, words: (value: number | null) => string, unit = ""): Figure => ({ value, text: words(value) + unit });
const time = (p50: (number | null)[], p99: (number | null)[]): Figure[] => [
  figure(first(p50), duration),
  figure(first(p99), duration, " p99"),
];

const COLUMNS: Column[] = [
  {
    head: "Completed",
    figures: ({ completed, requests, failed, cut, refused }) => [
      figure(first(completed), count, ` of ${count(first(requests))}`),
      figure(sum(first(failed), first(cut), first(refused ?? [])), count, " failed"),
    ],
  },
  {
    head: "Tokens",
    figures: ({ input, cache_read, output }) => [
      figure(sum(first(input), first(cache_read)), short, " in"),
      figure(first(output), short, " out"),
    ],
  },
  { head: "Cost", figures: (points) => [figure(costOf(points), dollars)] },
  { head: "First token", figures: (points) => time(points.first_content_us_p50 ?? [], points.first_content_us_p99 ?? []) },
  { head: "Total time", figures: (points) => time(points.duration_us_p50 ?? [], points.duration_us_p99 ?? []) },
];

/** The known cost; null if no attempt has a known price. */
function costOf({ cost_micro_usd, requests_unpriced }: Points): number | null {
  const cost = first(cost_micro_usd);
  return cost === 0 && sum(first(requests_unpriced)) > 0 ? null : cost;
}

/** A run; `value` is null for the requests without the tag. */
type Run = { value: string | null; points: Points };

export function RunsPage() {
  const tag = param("tag") || "run";
  const span = useSpan(param("period"), param("from"), param("to"));
  const search = new URLSearchParams({ step: "all", group_by: `tag:${tag}`, from: String(span.from), to: String(span.to) });
  const series = useResource<SeriesAnswer>(`series?${search}`);
  return (
    <Page title="Runs" lead="Requests by the values of a tag. A key's default tags count where a request has none of that name.">
      <Choices tag={tag} />
      <Loaded resource={series}>{(found) => <Runs of={found} tag={tag} span={span} />}</Loaded>
    </Page>
  );
}

function Choices({ tag }: { tag: string }) {
  const [text, setText] = useState(tag);
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault();
        setParams({ tag: text.trim() || null, base: null });
      }}
    >
      <Text aria-label="Tag" data-tag value={text} onValue={setText} placeholder="run" />
      <button type="submit" class="btn">
        Compare
      </button>
      <Select
        aria-label="Period"
        value={param("period") || "7d"}
        onValue={(period) => setParams({ period, from: null, to: null })}
        options={LENGTHS.map(([id, title]): [string, string] => [id, title])}
      />
    </form>
  );
}

type RunsProps = { of: SeriesAnswer; tag: string; span: { from: number; to: number } };

function Runs({ of: found, tag, span }: RunsProps) {
  const runs: Run[] = found.groups.map(({ group, points }) => ({ value: group[`tag:${tag}`] ?? null, points }));
  const tagged = runs.filter(({ value }) => value !== null);
  if (tagged.length === 0) return <NoRuns tag={tag} />;
  const unpriced = sum(...runs.map(({ points }) => first(points.requests_unpriced)));
  const base = tagged.find(({ value }) => value === param("base")) ?? null;
  return (
    <Card
      title={`By ${tag}`}
      aside={<span class="faint">{base ? "Changes against the chosen run" : "Choose a run to compare with"}</span>}
      bare
    >
      <div class="table-wrap" role="group" aria-label="Runs" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col" class="wrap">
                {tag}
              </th>
              {COLUMNS.map(({ head }) => (
                <th key={head} scope="col" class="num">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <Line key={run.value ?? ""} of={run} base={base} to={requestsOf(run, tag, span)} />
            ))}
          </tbody>
        </table>
      </div>
      {(unpriced > 0 || found.groups_omitted > 0 || found.partial) && (
        <div class="table-foot">
          {unpriced > 0 && <span>{plural(unpriced, "attempt")} without a known price: in no sum of costs</span>}
          {found.groups_omitted > 0 && <span>{plural(found.groups_omitted, "further value")} with fewer requests</span>}
          {found.partial && <span>before {moment(found.complete_from_ms)} records are missing</span>}
        </div>
      )}
    </Card>
  );
}

const requestsOf = ({ value }: Run, tag: string, { from, to }: RunsProps["span"]): string | null =>
  value === null ? null : href("/requests", { [`tag.${tag}`]: value, from: String(from), to: String(to) });

function Line({ of, base, to }: { of: Run; base: Run | null; to: string | null }) {
  const isBase = base === of;
  return (
    <tr>
      <td class="name-cell">
        {of.value === null ? (
          <span class="faint">without the tag</span>
        ) : (
          <label class="pick">
            <input type="checkbox" checked={isBase} onChange={() => setParams({ base: isBase ? null : of.value })} />
            <span>{of.value}</span>
          </label>
        )}
      </td>
      {COLUMNS.map(({ head, figures }) => {
        const others = base && !isBase && of.value !== null ? figures(base.points) : [];
        return (
          <td key={head} class="num">
            {figures(of.points).map((own, i) => (
              <div key={own.text}>
                {to && head === "Completed" && i === 0 ? <a href={to}>{own.text}</a> : own.text} <Change now={own} before={others[i]} />
              </div>
            ))}
          </td>
        );
      })}
    </tr>
  );
}

function Change({ now, before }: { now: Figure; before: Figure | undefined }) {
  if (now.value === null || before === undefined || before.value === null) return null;
  return <span class="faint small">{changeWords(now.value, before.value)}</span>;
}

function NoRuns({ tag }: { tag: string }) {
  return (
    <Empty
      icon="chart-column"
      title={`No request of this time has the tag ${tag}`}
      action={
        <a class="btn" href={href("/keys", { new: "1" })}>
          Mint a key for a run
        </a>
      }
    >
      Give each run a key with its own tag, or send <span class="mono">X-LLMGW-Tags: {tag}=NAME</span>.
    </Empty>
  );
}
