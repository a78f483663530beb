import { pageOf } from './page.ts'

/** The page for a path that leads nowhere. */
export function notFoundPage({ path, hasDashboard }: { path: string; hasDashboard: boolean }): string {
  const dashboard = hasDashboard ? 'Go to the <a href="/dashboard">dashboard</a>, or to the ' : 'Go to the '
  return pageOf({
    title: 'Not found',
    section: null,
    side: null,
    main: `<article class="prose">
<h1>Nothing is here</h1>
<p class="lead">This server has no page at <code>${Bun.escapeHTML(path)}</code>.</p>
<p>${dashboard}<a href="/docs">documentation</a>. Programs call <code>/v1/</code> and <code>/v2/</code>: <a href="/docs/api">all methods</a>.</p>
</article>`,
  })
}
