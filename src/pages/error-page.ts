import { STATUSES } from '../doors/v1/statuses.ts'
import { ALL_ERRORS, type AnyErrorCode } from '../errors.ts'
import { exampleOf } from './openapi.ts'
import { pageOf } from './page.ts'

/**
 * The page behind the `docs` link of an error: what the code means and what to do. Null = there is no such code.
 * @param publicUrl Base of the link in the example.
 */
export function errorPage(code: string, publicUrl: string): string | null {
  if (!isErrorCode(code)) return null
  const { fault, about, remedy } = ALL_ERRORS[code]
  return pageOf({
    title: code,
    section: null,
    side: sideOf(code),
    main: `<article class="prose">
<span class="status">HTTP ${STATUSES[code]}</span>
<h1 class="code">${code}</h1>
<p class="lead">${about}</p>
<h2>What to do</h2>
<p>${remedy}</p>
<h2>An example</h2>
<pre><code>${Bun.escapeHTML(JSON.stringify(exampleOf(code, publicUrl), null, 2))}</code></pre>
<h2>If that does not help</h2>
<p>Every response has a request id: <code>error.requestId</code> in the body, <code>Unkey-Request-Id</code> in the header.
The operator of this server finds the request by it${fault === 'ours' ? ', with the cause, in the log' : ''}.</p>
</article>`,
  })
}

/** All codes by status. */
const sideOf = (current: AnyErrorCode): string =>
  [...Map.groupBy(Object.entries(STATUSES), ([, status]) => status)]
    .sort(([first], [second]) => first - second)
    .map(
      ([status, rows]) =>
        `<h2>${status}</h2>\n${rows
          .map(
            ([code]) =>
              `<a href="/errors/${code}"${code === current ? ' aria-current="page"' : ''}>${code}</a>`,
          )
          .join('\n')}`,
    )
    .join('\n')

const isErrorCode = (code: string): code is AnyErrorCode => Object.hasOwn(ALL_ERRORS, code)
