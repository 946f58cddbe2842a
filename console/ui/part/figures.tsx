// A row of figures that are read at a glance: each with its name above and what explains it below.
import type { ComponentChildren } from "preact";

export function Figures({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={label}>
      <dl class="figures">{children}</dl>
    </section>
  );
}

type Props = { name: string; value: ComponentChildren; sub: ComponentChildren };

export function Figure({ name, value, sub }: Props) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd class="value">
        <b>{value}</b>
      </dd>
      <dd class="sub">{sub}</dd>
    </div>
  );
}
