import { STATUSES } from '../doors/v1/statuses.ts'
import { PROBLEMS, type ProblemType } from '../doors/v2/problems.ts'
import { ALL_ERRORS, type AnyErrorCode } from '../errors.ts'
import { pageOf } from './page.ts'
import { exampleOf } from './v1-description.ts'
import { describedProblem } from './v2-description.ts'

/**
 * The page of an error: what it means and what to do. Null = there is no such error.
 * @param name A code of the v1 API, whose errors link here; or a type of the v2 API without its base.
 * @param publicUrl Base of the link in the example.
 */
export function errorPage(name: string, publicUrl: string): string | null {
  if (isErrorCode(name)) {
    const { fault, about, remedy } = ALL_ERRORS[name]
    const example = exampleOf(name, publicUrl)
    const isOurs = fault === 'ours'
    return page({ name, status: STATUSES[name], about, remedy, example, idField: 'error.requestId', isOurs })
  }
  if (!isProblemType(name)) return null
  const { status, about, remedy } = PROBLEMS[name]
  const { example } = describedProblem(name)
  return page({ name, status, about, remedy, example, idField: 'meta.requestId', isOurs: status === 500 })
}

type Shown = {
  name: string
  status: number
  about: string
  remedy: string
  example: unknown
  /** Where the body has the request id. */
  idField: string
  isOurs: boolean
}

const page = ({ name, status, about, remedy, example, idField, isOurs }: Shown): string =>
  pageOf({
    title: name,
    section: null,
    side: sideOf(name),
    main: `<article class="prose">
<span class="status">HTTP ${status}</span>
<h1 class="code">${name}</h1>
<p class="lead">${textOf(about)}</p>
<h2>What to do</h2>
<p>${textOf(remedy)}</p>
<h2>An example</h2>
<pre><code>${Bun.escapeHTML(JSON.stringify(example, null, 2))}</code></pre>
<h2>If that does not help</h2>
<p>Every response has a request id: <code>${idField}</code> in the body, <code>Unkey-Request-Id</code> in the header.
The operator of this server finds the request by it${isOurs ? ', with the cause, in the log' : ''}.</p>
</article>`,
  })

/** Code between backticks is the only markup. */
const textOf = (text: string) => Bun.escapeHTML(text).replace(/`([^`]+)`/g, '<code>$1</code>')

/** All errors of the same API by status. */
function sideOf(current: string): string {
  const rows: [name: string, status: number][] = isErrorCode(current)
    ? Object.entries(STATUSES)
    : Object.entries(PROBLEMS).map(([type, { status }]) => [type, status])
  return [...Map.groupBy(rows, ([, status]) => status)]
    .sort(([first], [second]) => first - second)
    .map(
      ([status, those]) =>
        `<h2>${status}</h2>\n${those
          .map(
            ([name]) =>
              `<a href="/errors/${name}"${name === current ? ' aria-current="page"' : ''}>${name.replace(/^.*\//, '')}</a>`,
          )
          .join('\n')}`,
    )
    .join('\n')
}

const isErrorCode = (name: string): name is AnyErrorCode => Object.hasOwn(ALL_ERRORS, name)
const isProblemType = (name: string): name is ProblemType => Object.hasOwn(PROBLEMS, name)
