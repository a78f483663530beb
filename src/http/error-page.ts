import { ERRORS, type ErrorCode } from '../errors.ts'

/** What a person sees behind the `docs` link of an error: what the code means and what to do. Null = no such code. */
export function errorPage(code: string): string | null {
  if (!isErrorCode(code)) return null
  const { status, about, remedy } = ERRORS[code]
  const others = Object.keys(ERRORS)
    .map((other) => `<a href="${other}"${other === code ? ' aria-current="page"' : ''}>${other}</a>`)
    .join('\n')
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${code} · Tollgate</title>
<style>
  :root { color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif }
  body { max-width: 42rem; margin: 0 auto; padding: 3rem 1.5rem }
  h1 { font: 600 1.75rem/1.2 ui-monospace, monospace; overflow-wrap: anywhere }
  h2 { font-size: 1rem; margin: 2rem 0 .25rem }
  p { margin: .25rem 0 }
  .status { opacity: .7 }
  nav { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid #8884; font: .85rem/2 ui-monospace, monospace }
  nav a { margin-right: 1rem; display: inline-block }
  a { color: inherit } a[aria-current] { font-weight: 700; text-decoration: none }
</style>
<h1>${code}</h1>
<p class="status">HTTP status ${status}</p>
<h2>What it means</h2>
<p>${about}</p>
<h2>What to do</h2>
<p>${remedy}</p>
<p>Every answer carries an <code>Unkey-Request-Id</code> header; the operator of this server finds the request by it.</p>
<nav aria-label="All error codes">${others}</nav>
</html>
`
}

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERRORS, code)
