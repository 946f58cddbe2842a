// The periodic jobs of the gateway: when each ran last, how that ended, and when it runs next.
import type { Job } from "../api/types";
import { ago } from "../part/format";
import { State } from "../part/icon";
import { Card } from "../part/page";

/** How the last run of a job ended. */
export function standingOf(job: Job): { kind: "ok" | "warn" | "bad"; word: string } {
  if (job.last_error !== null) return { kind: "bad", word: "failed" };
  if (job.last_started_at_ms === null) return { kind: "ok", word: "not yet run" };
  return { kind: "ok", word: job.last_ended_at_ms === null ? "running" : "done" };
}

export function JobsCard({ of }: { of: Job[] }) {
  return (
    <Card title="Periodic jobs" bare>
      <div class="table-wrap" role="group" aria-label="Periodic jobs" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">Interval</th>
              <th scope="col">Last run</th>
              <th scope="col">Outcome</th>
              <th scope="col">Next run</th>
            </tr>
          </thead>
          <tbody>
            {of.map((job) => (
              <Row key={job.name} of={job} />
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Row({ of }: { of: Job }) {
  const { kind, word } = standingOf(of);
  return (
    <tr>
      <td class="mono">{of.name}</td>
      <td>{of.interval}</td>
      <td>{ago(of.last_started_at_ms)}</td>
      <td>
        <State kind={kind} word={word} />
        {of.last_error !== null && <div class="faint">{of.last_error}</div>}
      </td>
      <td>{ago(of.next_at_ms)}</td>
    </tr>
  );
}
